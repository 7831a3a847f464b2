"""What of a window was seen while not everything was watched, and what the rest is estimated from."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
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
class SeenTime:
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

    def add(self, other: SeenTime) -> None:
        self.ns += other.ns
        self.gap += other.gap
        self.counted += other.counted
        self.told += other.told
        self.detail_ns += other.detail_ns


def student(freedom: int) -> float:
    """How many times a spread estimated so a value may be off (95 %): few periods say little of it."""
    return STUDENT[max(freedom, 1) - 1] if freedom <= len(STUDENT) else 1.96 + 2.6 / freedom


@dataclass(frozen=True, slots=True)
class CallingPace:
    """How steadily a process calls a function, from the last on-periods."""

    spread: float  # of its calls, from one to the next, of their mean
    periods: int
    slowed: float = 0.0  # part of its time that watching takes; whether it shows in its rate is not known
    anchor: int | None = None  # meter of an always watched function it keeps step with; None: with its time
    per_call: float = 0.0  # calls to each of that one

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
    paces: dict[tuple[int, int], CallingPace] = field(default_factory=dict)  # by process and function
    steps: StepsBy = field(default_factory=dict)  # those of the window
    bases: dict[int, Base] = field(default_factory=dict)  # by process
    threads: dict[int, SeenTime] = field(default_factory=dict)  # by thread
    blind: bool = False  # waits for the GPU are among those functions


# The last on-periods: how steadily each process called what is watched a part of the time.
#
# How much they differ says how far an estimate from them may be off.


KEPT = 24
ENOUGH = 4  # calls always watched, in all of them: to go by those
ENOUGH_CALLS = 30  # to say that a process does something else
FEW = 2  # periods
UNKNOWN = 0.5
DOUBT = 0.25  # that a job goes on as it did, where nothing but its time on a core tells
RECENT = 6  # periods that agree: about a second and a half
OTHERWISE = 2.0  # times the calls of before, in each of them: the job does something else now
STEADY = 2 * KEPT  # periods after which it may be another again
TOO_SHORT_NS = 2_000_000  # on a core: says nothing of a rate
# Periods: what looks may miss counts as so many. A few that agree by chance are no proof of a steady job.
PRIOR = 2
Called = dict[tuple[int, int], int]  # by process and function


@dataclass(frozen=True, slots=True)
class CountedLook:
    """At a process that had just called that function."""

    count: int
    calls: NDArray[np.int64]  # by meter
    since: NDArray[np.int64]  # of those, since the look before: where amid them it was called is not known


@dataclass(slots=True)
class Aligned:
    """A process in an on-period, looked at again and again, against one function that is always watched.

    What it had called when that was seen to have been called since the last look, at first and at last.
    """

    count: int = 0
    seen: NDArray[np.int64] | None = None  # at the last look
    first: CountedLook | None = None
    last: CountedLook | None = None

    def note(self, count: int, calls: NDArray[np.int64]) -> None:
        """`calls`: by meter, since the on-period began."""
        since = calls if self.seen is None else calls - self.seen
        self.seen = calls
        if count == self.count:
            return
        self.count, self.last = count, CountedLook(count, calls, since)
        self.first = self.first or self.last

    def steps(self, meter: int) -> Steps:
        if self.first is None or self.last is None or self.first is self.last:
            return Steps()
        made, always = (
            int(self.last.calls[meter] - self.first.calls[meter]),
            self.last.count - self.first.count,
        )
        missed = sum(float(look.since[meter]) ** 2 for look in (self.first, self.last))
        return Steps(made, always, missed / 12)


@dataclass(frozen=True, slots=True)
class Period:
    """One time everything was watched."""

    calls: Called = field(default_factory=dict)  # of functions that are watched a part of the time
    cpu_ns: dict[int, int] = field(default_factory=dict)  # on a core, by process
    took_ns: dict[int, float] = field(default_factory=dict)  # of that: watching
    steps: StepsBy = field(default_factory=dict)

    def of(self, pid: int) -> int:
        return sum(count for (owner, _), count in self.calls.items() if owner == pid)


class Periods:
    """The last of them."""

    def __init__(self) -> None:
        self._periods: deque[Period] = deque(maxlen=KEPT)
        self._since_change = STEADY  # since the job was last seen to do something else

    def __len__(self) -> int:
        return len(self._periods)

    def add(self, period: Period) -> None:
        self._periods.append(period)

    def clear(self) -> None:
        """The job does something else."""
        self._periods.clear()

    def forget_times(self, unseen: Collection[int]) -> None:
        """They were watched in another way. What keeps step with what stays true, but for functions (by
        meter) that are not seen all the time any more."""
        steps = [
            {key: found for key, found in each.steps.items() if key[2] not in unseen}
            for each in self._periods
        ]
        self._periods = deque((Period(steps=each) for each in steps if each), maxlen=KEPT)

    def forget_steps(self, anchor: int) -> None:
        """What is counted at that meter has changed."""
        for each in self._periods:
            for key in [key for key in each.steps if key[2] == anchor]:
                del each.steps[key]

    def forget_what_was(self) -> bool:
        """Whether the last few show a process doing something else than those before, which go."""
        self._since_change += 1
        recent, before = list(self._periods)[-RECENT:], list(self._periods)[:-RECENT]
        # One that goes on changing has phases: then their differences say how far an estimate may be off.
        if not before or self._since_change < STEADY:
            return False
        if not any(_differs(before, recent, pid) for pid in recent[-1].cpu_ns):
            return False
        self._periods = deque(recent, maxlen=KEPT)
        self._since_change = 0
        return True

    def paces(self, functions: Collection[int]) -> dict[tuple[int, int], CallingPace]:
        """Of those functions that are watched a part of the time, by process."""
        seen = {key for each in self._periods for key in each.calls}
        seen |= {key[:2] for each in self._periods for key in each.steps}
        return {key: self._pace(*key) for key in seen if key[1] in functions}

    def _pace(self, pid: int, function: int) -> CallingPace:
        timed = [each for each in self._periods if pid in each.cpu_ns]
        calls = np.array([each.calls.get((pid, function), 0) for each in timed], np.float64)
        cpu_ns = np.array([each.cpu_ns[pid] for each in timed], np.float64)
        took_ns = np.array([each.took_ns.get(pid, 0.0) for each in timed], np.float64)
        slowed = float(took_ns.sum() / max(cpu_ns.sum(), 1.0))
        # What a job does between periods may be anything: few that agree do not say that it goes on so.
        doubt = (DOUBT * float(calls.mean())) ** 2 if len(calls) else None
        by_time = CallingPace(_spread(calls, cpu_ns, doubt), len(calls) + PRIOR, slowed)
        anchored = {anchor: self._anchored(pid, function, anchor) for anchor in range(METERS)}
        known = {anchor: each for anchor, each in anchored.items() if each}
        if len(known) > 1:  # what others without a meter do together changes with every phase of a job
            known.pop(OTHERS, None)
        best = min(known.values(), key=lambda each: each.chance, default=by_time)
        return best if best.chance < by_time.chance + TAKEN * slowed else by_time

    def _anchored(self, pid: int, function: int, anchor: int) -> CallingPace | None:
        """Against another function, where that is called often enough."""
        key = (pid, function, anchor)
        steps = [each.steps[key] for each in self._periods if key in each.steps]
        steps = [each for each in steps if each.always]
        if sum(each.always for each in steps) < ENOUGH or len(steps) < FEW:
            return None
        calls, always = np.array([(each.calls, each.always) for each in steps], np.float64).T
        missed = float(np.mean([each.missed for each in steps]))
        spread, per_call = _spread(calls, always, missed), float(calls.sum() / always.sum())
        return CallingPace(spread, len(steps) + PRIOR, anchor=anchor, per_call=per_call)


def _differs(before: list[Period], recent: list[Period], pid: int) -> bool:
    """All recent ones of a process on the same side of those before, far off."""
    cpu_ns = sum(each.cpu_ns.get(pid, 0) for each in before)
    if cpu_ns < TOO_SHORT_NS or any(each.cpu_ns.get(pid, 0) < TOO_SHORT_NS for each in recent):
        return False
    usual = sum(each.of(pid) for each in before) / cpu_ns
    rates = [each.of(pid) / each.cpu_ns[pid] for each in recent]
    if sum(each.of(pid) for each in (*before, *recent)) < ENOUGH_CALLS:
        return False
    return min(rates) > OTHERWISE * usual or max(rates) * OTHERWISE < usual


def _spread(values: NDArray[np.float64], base: NDArray[np.float64], missed: float | None = None) -> float:
    """How much the ratio of two varies, relative, by how much of the base each period had.

    `missed`: what each value may be off by, by the way it was looked at, squared.
    """
    if len(values) < 2 or not values.sum() or not base.sum():
        return UNKNOWN
    off = values - base * (values.sum() / base.sum())
    prior = PRIOR if missed is not None else 0
    variance = ((off**2).sum() + prior * (missed or 0.0)) / (len(values) - 1 + prior)
    return float(np.sqrt(variance) / values.mean())
