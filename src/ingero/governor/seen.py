"""What of a window was seen while not everything was watched, and what the rest is estimated from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingero.model.layout import Bucket, Meters
from ingero.model.window import BUCKETS

METERS = int(Meters.METERS)
OTHERS = int(Meters.METER_OTHERS)  # all functions without a meter of their own
# Of what hits are calibrated to take, what they do: a loop that spins until its turn loses nothing by them,
# one of nothing but calls half, a program with much between its calls all. All of that range is doubted.
TAKEN = 0.5
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31)  # by degrees of freedom


# What a wait for the GPU looks like where nobody sees the call it is in: time on a core where it spins,
# sleep or a wait for somebody where it blocks.
UNSEEN_WAIT = (Bucket.HOST_CPU, Bucket.LOCK_WAIT, Bucket.PEER_WAIT, Bucket.SLEEP, Bucket.UNEXPLAINED)


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
    # Of ns: in on-periods in which it showed whether the GPU had something to do. One that begins and ends
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


def student(freedom: int) -> float:
    """How many times a spread estimated so a value may be off (95 %): few periods say little of it."""
    return STUDENT[max(freedom, 1) - 1] if freedom <= len(STUDENT) else 1.96 + 2.6 / freedom


@dataclass(frozen=True, slots=True)
class Pace:
    """How steadily a process calls a function, from the last on-periods."""

    spread: float  # of its calls, from one to the next, of their mean
    periods: int
    slowed: float = 0.0  # part of its time that watching takes; whether it shows in its rate is not known
    anchor: int | None = None  # meter of an always watched function it keeps step with; None: with its time

    @property
    def chance(self) -> float:
        """How far a mean of these periods may be off the mean of those between (95 %), relative."""
        return student(self.periods - 1) * self.spread * float((2 / max(self.periods, 1)) ** 0.5)


@dataclass(frozen=True, slots=True)
class Steps:
    """Calls between two moments at which another function, one that is always watched, was just called.

    A wait for the GPU at the end of each step, say: then no step counts in part.
    """

    calls: int = 0
    always: int = 0  # calls of that other function
    missed: float = 0.0  # how many calls that may be off by, squared: looks come a while after those moments

    def __add__(self, other: Steps) -> Steps:
        return Steps(self.calls + other.calls, self.always + other.always, self.missed + other.missed)


StepsBy = dict[tuple[int, int, int], Steps]  # by process, function and meter of the other one


@dataclass(frozen=True, slots=True)
class Base:
    """What is known of a process whether or not it is watched in full: in on-periods, and between them."""

    cpu_ns: int  # on a core
    cpu_between_ns: int
    # calls by meter, of functions that are always watched, in all of the window
    calls: NDArray[np.int64] = field(default_factory=lambda: np.zeros(METERS, np.int64))
    inside: float = 1.0  # part of the calls that were counted; the others were at the edges of on-periods


@dataclass(slots=True)
class Watched:
    """How much of a window the functions that are watched a part of the time were."""

    share: float  # of the window
    operations: frozenset[int]  # those functions
    paces: dict[tuple[int, int], Pace] = field(default_factory=dict)  # by process and function
    steps: StepsBy = field(default_factory=dict)  # those of the window
    bases: dict[int, Base] = field(default_factory=dict)  # by process
    threads: dict[int, Seen] = field(default_factory=dict)  # by thread
    blind: bool = False  # waits for the GPU are among those functions
