"""What a trace does before it begins, for somebody who looks: one line on standard error, written over.

Imports nothing of weight: the line is there before the rest is loaded.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


class StartingLine:
    """Gone once it is told nothing more; what others wrote there is never touched."""

    def __init__(self) -> None:
        self._shown = False

    def say(self, doing: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            if (doing or self._shown) and sys.stderr.isatty():
                sys.stderr.write(f"\r\x1b[K{f'ingero: {doing} ...' if doing else ''}")
                sys.stderr.flush()
                self._shown = bool(doing)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """While our own modules are read."""
    line = StartingLine()
    line.say("starting")
    try:
        yield
    finally:
        line.say("")
