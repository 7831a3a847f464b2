"""Probes on one library file, held by a keeper: off when we let go, and when we die.

The keeper is a process that has the links and nothing else, and exits when the pipe
from us ends (why: native/_keeper.c). Somebody may kill it; then the probes are gone
before their time and `gone` says so.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ingero import isolated
from ingero.native import _shim


@dataclass(slots=True, eq=False)
class Links:
    """What one attach made."""

    keeper: int
    prompt: bool  # the kernel lets go of them at once, so that it can be waited for
    _hold: int  # the keeper reads the other end
    _ended: bool = False

    def let_go(self) -> None:
        """The keeper ends, and the probes with it."""
        os.close(self._hold)
        self._hold = -1

    def gone(self, wait: bool = False) -> bool:
        """Whether the probes are off."""
        if not self._ended:  # afterwards the number may be somebody else's
            try:
                self._ended = os.waitpid(self.keeper, 0 if wait else os.WNOHANG)[0] != 0
            except ChildProcessError:  # where SIGCHLD is ignored nobody is told how children end
                self._ended = True
        return self._ended

    def close(self) -> None:
        """Take the probes off, however long it takes."""
        self.let_go()
        self.gone(wait=True)


def keep(
    ends: Sequence[tuple[int, int]],
    kind: int,
    path: str,
    points: Sequence[tuple[int, int]],
    perf: bool = False,
) -> Links:
    """Attach programs (descriptor, flags) to (offset, cookie) of a file; OSError where it is refused."""
    offsets, cookies = np.array(points, "<u8").reshape(-1, 2).T.copy()
    keeper, hold = _shim.keep_uprobes(_command(), np.array(ends, "<u4"), kind, path, offsets, cookies, perf)
    return Links(keeper, not perf, hold)


@cache
def _command() -> tuple[str, ...]:
    """Something small that reads its input to the end."""
    cat = shutil.which("cat", path="/bin:/usr/bin")
    return (cat,) if cat else isolated.reader_of_input()
