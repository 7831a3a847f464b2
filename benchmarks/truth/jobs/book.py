"""A page of memory shared by a job and whoever started it: which settings hold now, when steps ended.

No system call is made to read or write it, so that it is in nobody's way and in no trace.
Times are CLOCK_MONOTONIC nanoseconds.
"""

from __future__ import annotations

import mmap
import time
from pathlib import Path

PHASE, STEPS, TROUBLE, HIRED, FIRST = 0, 1, 2, 3, 64
ROOM = 1 << 17


class Book:
    """Opened by both sides; `path` is made if it is not there."""

    def __init__(self, path: str | Path) -> None:
        size = (FIRST + ROOM) * 8
        with Path(path).open("a+b") as file:
            file.truncate(size)
            self._words = memoryview(mmap.mmap(file.fileno(), size)).cast("q")

    @property
    def phase(self) -> int:
        """0: as usual; 1: later."""
        return self._words[PHASE]

    @phase.setter
    def phase(self, phase: int) -> None:
        self._words[PHASE] = phase

    def step_ended(self) -> None:
        steps = self._words[STEPS]
        self._words[FIRST + steps % ROOM] = time.monotonic_ns()
        self._words[STEPS] = steps + 1

    @property
    def steps(self) -> int:
        return self._words[STEPS]

    def trouble_met(self) -> None:
        """The job itself met an error."""
        self._words[TROUBLE] += 1

    @property
    def troubles(self) -> int:
        return self._words[TROUBLE]

    def worker_hired(self, pid: int) -> None:
        self._words[HIRED] += 1
        self._words[HIRED + 1 + (self._words[HIRED] - 1) % (FIRST - HIRED - 1)] = pid

    @property
    def hired(self) -> list[int]:
        """Worker processes, those that are gone among them."""
        return self._words[HIRED + 1 : HIRED + 1 + min(self._words[HIRED], FIRST - HIRED - 1)].tolist()

    def ends_ns(self) -> list[int]:
        """When each step ended."""
        return self._words[FIRST : FIRST + min(self.steps, ROOM)].tolist()
