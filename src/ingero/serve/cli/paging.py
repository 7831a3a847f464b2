"""Long answers on a terminal go through a pager: PAGER, else less, as git does it; never into a pipe.

less is told to leave at once where everything fits, to pass colours on and to leave the text standing
(-FRX), unless LESS says otherwise. The pager is started by the first text, so that an error never opens one.
"""

from __future__ import annotations

import functools
import io
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import click

from ingero.serve.letters import has_unicode

USUAL = "less"


def paged(function: Any) -> Any:
    """Give a command --no-pager, and its standard output a pager where somebody looks."""

    @click.option("--no-pager", is_flag=True, help="Print long answers without a pager.")
    @functools.wraps(function)
    def wrapper(no_pager: bool, **rest: Any) -> Any:
        words = [] if no_pager else pager_words()
        if not words or not sys.stdout.isatty():
            return function(**rest)
        with through(words):
            return function(**rest)

    return wrapper


def pager_words() -> list[str]:
    """The command; empty: none is wanted, or there is none."""
    try:
        words = shlex.split(os.environ.get("PAGER", USUAL))
    except ValueError:
        return []
    return words if words and words[0] != "cat" and shutil.which(words[0]) else []


class Pager(io.TextIOBase):
    """Standard output as long as the command runs; still a terminal to whoever asks."""

    encoding = "utf-8"

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._process: subprocess.Popen[str] | None = None

    def isatty(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._process is None:
            less = {"LESS": "FRX"} | ({"LESSCHARSET": "utf-8"} if has_unicode(os.environ) else {})
            self._process = subprocess.Popen(
                self._words, stdin=subprocess.PIPE, text=True, encoding="utf-8", errors="replace",
                env={**less, **os.environ},
            )  # fmt: skip
        assert self._process.stdin is not None
        return self._process.stdin.write(text)

    def flush(self) -> None:
        if self._process is not None and self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.flush()

    def finish(self) -> None:
        """What was written is shown; whoever reads takes as long as they like."""
        if self._process is None:
            return
        with suppress(OSError):
            cast(Any, self._process.stdin).close()
        while True:
            with suppress(KeyboardInterrupt):  # Ctrl-C is the pager's: it stops a search
                self._process.wait()
                return


@contextmanager
def through(words: list[str]) -> Iterator[None]:
    before, pager = sys.stdout, Pager(words)
    before.flush()
    sys.stdout = cast(Any, pager)
    try:
        yield
        pager.flush()
    except BrokenPipeError:  # the reader has seen enough
        pass
    finally:
        sys.stdout = before
        pager.finish()
