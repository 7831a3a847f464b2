"""Where a thread's time went, from intervals off its core and intervals inside calls.

A switch of the Go implementation says when a thread came back and how long it was
away, not why: no task state, no wake-up, nobody to blame. So only two reasons are
ever named. Away for as long as a block read of the same thread took: `disk_wait`.
Away for the same time over and over: a timer, `sleep`. Everything else off the core
is `unexplained`; it may be preemption and it may be blocking, and `runqueue` is
never claimed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingero.model.layout import Bucket
from ingero.model.window import BUCKETS
from ingero.units import MS, SECOND, US

Ints = NDArray[np.int64]
MATCH_NS = 100 * US  # a read and the wait for it: measured 3 to 14 us apart, 2 to 17 us longer
TIMER_COUNT = 8
TIMER_SPREAD = 1.01  # longest by shortest: half a percent to either side
TIMER_LEAST_NS = MS  # shorter ones spread by more than that
# A sleep ends 50 us late or more (the kernel's timer slack); a time slice taken by others is a
# whole number of ticks, give or take some microseconds, and must not pass for a sleep.
TICK_NS, TICK_MARGIN_NS = MS, 25 * US
# CPython waits this long for its GIL before it asks the holder to let go, again and again.
GIL_LEAST_NS, GIL_MOST_NS = 5 * MS, 5 * MS + 300 * US
MAX_SECONDS = 200_000  # per thread; what lies beyond is not accounted
REST = BUCKETS  # column: in no interval at all


@dataclass(frozen=True, slots=True)
class Spans:
    """Intervals of one thread, sorted by begin."""

    start: Ints
    end: Ints

    @staticmethod
    def of(start: Ints, length: Ints) -> Spans:
        order = np.argsort(start, kind="stable")
        return Spans(start[order], (start + length)[order])

    def merged(self) -> Spans:
        """Without overlaps: nested and touching ones become one."""
        if not len(self.start):
            return self
        reached = np.maximum.accumulate(self.end)
        first = np.concatenate(([True], self.start[1:] > reached[:-1]))
        last = np.concatenate((first[1:], [True]))
        return Spans(self.start[first], reached[last])

    def covering(self, instants: Ints) -> Ints:
        """Which interval each instant lies in, -1 for none; the intervals must not overlap."""
        if not len(self.start):
            return np.full(len(instants), -1, np.int64)
        at = np.searchsorted(self.start, instants, side="right") - 1
        inside = (at >= 0) & (instants < self.end[np.maximum(at, 0)])
        return np.where(inside, at, -1).astype(np.int64)


def classify(start: Ints, length: Ints, read_start: Ints, read_length: Ints) -> Ints:
    """The bucket of each interval a thread was off its core; all four sorted by begin."""
    bucket = np.full(len(start), int(Bucket.UNEXPLAINED), np.int64)
    bucket[_waits_for_reads(start, length, read_start, read_length)] = int(Bucket.DISK_WAIT)
    other = np.flatnonzero(bucket == int(Bucket.UNEXPLAINED))
    bucket[other[_timer(length[other])]] = int(Bucket.SLEEP)
    return bucket


def _waits_for_reads(start: Ints, length: Ints, read_start: Ints, read_length: Ints) -> list[int]:
    """Intervals that begin and last as a read does; each read explains one of them."""
    taken: set[int] = set()
    first = np.searchsorted(start, read_start - MATCH_NS)
    beyond = np.searchsorted(start, read_start + MATCH_NS, side="right")
    for at, (low, high) in enumerate(zip(first.tolist(), beyond.tolist(), strict=True)):
        near = [i for i in range(low, min(high, low + 64)) if i not in taken]
        off = [abs(int(length[i]) - int(read_length[at])) for i in near]
        if off and min(off) <= MATCH_NS:
            taken.add(near[off.index(min(off))])
    return sorted(taken)


def _timer(length: Ints) -> Ints:
    """Intervals of practically one length that make up most of the time; none if there is no such."""
    none = np.zeros(0, np.int64)
    if len(length) < TIMER_COUNT:
        return none
    order = np.argsort(length, kind="stable")
    ordered = length[order]
    upto = np.searchsorted(ordered, (ordered * TIMER_SPREAD).astype(np.int64), side="right")
    total = np.concatenate(([0], np.cumsum(ordered)))
    at = int(np.argmax(total[upto] - total[:-1]))
    chosen = slice(at, int(upto[at]))
    middle = int(np.median(ordered[chosen]))
    enough = upto[at] - at >= TIMER_COUNT and middle >= TIMER_LEAST_NS
    most = 2 * (total[upto[at]] - total[at]) > total[-1]
    return order[chosen] if enough and most and not _no_sleep(middle) else none


def _no_sleep(length: int) -> bool:
    """Lengths that come again and again for another reason: time slices, and turns at the GIL."""
    beside = length % TICK_NS
    slices = min(beside, TICK_NS - beside) <= TICK_MARGIN_NS
    return slices or GIL_LEAST_NS <= length <= GIL_MOST_NS


@dataclass(frozen=True, slots=True)
class IntervalSums:
    """Nanoseconds by second and bucket; the last column is what no interval covers."""

    seconds: Ints  # their begin, Unix epoch
    ns: Ints  # one row per second, BUCKETS + 1 columns


def account(off: Spans, bucket: Ints, calls: Spans, syncs: Spans) -> IntervalSums:
    """From the thread's first interval to its last; every nanosecond in one column."""
    off = Spans(np.maximum(off.start, _ended_before(off)), off.end)  # a broken file may overlap
    keep = off.end > off.start
    off, bucket = Spans(off.start[keep], off.end[keep]), bucket[keep]
    calls, syncs = calls.merged(), syncs.merged()
    points, seconds = _points((off, calls, syncs))
    middle, lengths = points[:-1], np.diff(points)
    away = off.covering(middle)
    column = np.full(len(middle), REST, np.int64)
    column[calls.covering(middle) >= 0] = int(Bucket.CUDA_CPU)
    column[syncs.covering(middle) >= 0] = int(Bucket.GPU_WAIT)
    column[away >= 0] = bucket[away[away >= 0]]
    ns = np.zeros((len(seconds), BUCKETS + 1), np.int64)
    if len(middle):
        np.add.at(ns, ((middle - seconds[0]) // SECOND, column), lengths)
    return IntervalSums(seconds, ns)


def _ended_before(off: Spans) -> Ints:
    reached = np.maximum.accumulate(off.end) if len(off.end) else off.end
    return np.concatenate(([np.int64(0)], reached[:-1])).astype(np.int64)[: len(off.end)]


def _points(spans: tuple[Spans, ...]) -> tuple[Ints, Ints]:
    """Where anything changes, the turns of seconds included; and the seconds."""
    ends = [edge for each in spans for edge in (each.start, each.end)]
    changes = np.unique(np.concatenate(ends))
    if not len(changes):
        return changes, changes
    first = int(changes[0]) // SECOND
    count = min(-(-int(changes[-1]) // SECOND) - first, MAX_SECONDS)
    seconds = (first + np.arange(max(count, 1), dtype=np.int64)) * SECOND
    points = np.unique(np.concatenate((changes, seconds[1:])))
    return points[points <= seconds[-1] + SECOND], seconds


def spread(total: int, room: Ints) -> Ints:
    """`total` nanoseconds over rows in proportion to the room each has; never more than that."""
    available = int(room.sum())
    if total <= 0 or not available:
        return np.zeros(len(room), np.int64)
    share = min(1.0, total / available)
    reached = np.floor(np.cumsum(room).astype(np.float64) * share).astype(np.int64)
    return np.minimum(np.diff(reached, prepend=np.int64(0)), room)


def inside(spans: Spans, start: Ints, end: Ints) -> Ints:
    """How much of each interval [start, end) the spans cover; they must not overlap."""
    if not len(spans.start):
        return np.zeros(len(start), np.int64)
    total = np.concatenate(([0], np.cumsum(spans.end - spans.start)))

    def before(instants: Ints) -> Ints:
        at = np.searchsorted(spans.start, instants, side="right")
        last = np.maximum(at - 1, 0)
        beyond = np.where(at > 0, np.maximum(spans.end[last] - instants, 0), 0)
        covered: Ints = total[at] - beyond
        return covered

    return before(end) - before(start)
