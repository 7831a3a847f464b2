"""What of a window was seen while not everything was watched, and what the rest is estimated from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingero.model.layout import Bucket
from ingero.model.window import BUCKETS

# What an action of the governor names besides groups of calls, and how it is called when all is watched.
RECORDS, TIMING = "records and stacks", "timing of "
ALL_DUE, ALL_TIMED, ALL_THE_TIME = "all that are due", "every call timed", "all the time"


def own_ns(cpu_ns: int, detail_ns: int) -> int:
    """Time on a core without what records and stacks took of it; some of those are walked in waits."""
    return max(cpu_ns - detail_ns, cpu_ns // 2)


def _none() -> NDArray[np.int64]:
    return np.zeros(BUCKETS, np.int64)


@dataclass(slots=True)
class Seen:
    """A thread's time while everything was watched."""

    ns: NDArray[np.int64] = field(default_factory=_none)
    gap: NDArray[np.int64] = field(default_factory=_none)
    counted: int = 0  # calls counted and not timed
    # Of ns: in looks in which it showed whether the GPU had something to do. One that begins and ends
    # within a long stretch of other work shows nothing.
    told: NDArray[np.int64] = field(default_factory=_none)
    detail_ns: int = 0  # on a core, that records and stacks took of it

    @property
    def cpu_ns(self) -> int:
        return int(self.ns[Bucket.CUDA_CPU] + self.ns[Bucket.HOST_CPU])

    @property
    def work_ns(self) -> int:
        """On a core, for itself."""
        return own_ns(self.cpu_ns, self.detail_ns)

    def add(self, other: Seen) -> None:
        self.ns += other.ns
        self.gap += other.gap
        self.counted += other.counted
        self.told += other.told
        self.detail_ns += other.detail_ns


@dataclass(frozen=True, slots=True)
class Pace:
    """How steady a process is, from the last looks at it."""

    spread: float  # of its calls, from look to look, of their mean
    looks: int
    slowed: float = 0.0  # part of its time that watching takes; whether it shows in its rate is not known
    by_calls: bool = False  # its calls keep step with those always watched, better than with its time


@dataclass(frozen=True, slots=True)
class Base:
    """What is known of a process whether or not it is looked at: in looks, and between them."""

    cpu_ns: int  # on a core
    cpu_between_ns: int
    calls: int  # of operations that are always watched
    calls_between: int
    inside: float = 1.0  # part of the calls that were counted; the others were at the edges of looks


@dataclass(slots=True)
class Watched:
    """How much of a window the governed operations were watched."""

    share: float  # of the window
    operations: frozenset[int]  # those closed at other times
    processes: dict[int, Pace] = field(default_factory=dict)
    bases: dict[int, Base] = field(default_factory=dict)  # by process
    threads: dict[int, Seen] = field(default_factory=dict)  # by thread
