"""What the overhead governor did, and what of a window was seen because of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingero.model.window import BUCKETS


def _none() -> NDArray[np.int64]:
    return np.zeros(BUCKETS, np.int64)


@dataclass(slots=True)
class Seen:
    """A thread's time while everything was watched."""

    ns: NDArray[np.int64] = field(default_factory=_none)
    gap: NDArray[np.int64] = field(default_factory=_none)
    counted: int = 0  # calls counted and not timed

    def add(self, other: Seen) -> None:
        self.ns += other.ns
        self.gap += other.gap
        self.counted += other.counted


@dataclass(slots=True)
class Watched:
    """How much of a window the governed operations were watched."""

    from_ns: int
    to_ns: int
    open: list[tuple[int, int]]  # when they were
    operations: frozenset[int]  # those closed at other times
    spread: dict[int, float] = field(default_factory=dict)  # of a process's rate between looks, of its mean
    looks: int = 0  # that spread is from so many
    slowed: dict[int, float] = field(default_factory=dict)  # by process: part of its time, while watched
    threads: dict[int, Seen] = field(default_factory=dict)  # by thread

    def open_ns(self, from_ns: int, to_ns: int) -> int:
        return sum(max(0, min(end, to_ns) - max(start, from_ns)) for start, end in self.open)
