"""Where the time of each step went: accounted seconds, cut at the labels.

Time is accounted by thread and second, steps are shorter. Recorded calls and waits have
their own instants, and their parts lie where they were; the rest of a second is spread
evenly over what is left of it. So the steps of a second sum to that second, bucket by
bucket, and `located_share` says how much of a step's time is known to be its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingero.model.report import LabelReport, LabelTime
from ingero.model.window import BUCKET_NAMES
from ingero.serve.answers.labels import Held, Span
from ingero.serve.answers.shares import ON_CPU
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.store.schema import BUCKET_COLUMNS

SHOWN = 1000
OFF_CPU = np.array([name not in ON_CPU for name in BUCKET_NAMES])
_SUMS = ", ".join(f"SUM({column})" for column in BUCKET_COLUMNS)


@dataclass(frozen=True, slots=True)
class _Seconds:
    """What is accounted of one thread."""

    starts: Ints
    ends: Ints
    ns: Floats  # (seconds, buckets)


def label_report(reader: Reader, when: TimeRange, key: str, spans: Held) -> LabelReport:
    """The values that took longest, and where the feeding threads' time went meanwhile."""
    sums: dict[str, Floats] = {}
    placed: dict[str, float] = {}
    for process_id, tid, seconds in _feeding(reader, when, spans):
        mine = spans[process_id]
        placed_there = _with_earlier(seconds, recorded(reader, when, tid, process_id))
        total, known = _cut(seconds, placed_there, mine)
        for at, span in enumerate(mine):
            sums[span.value] = sums.get(span.value, np.zeros(BUCKETS)) + total[at]
            placed[span.value] = placed.get(span.value, 0.0) + float(known[at])
    took = _took(reader, spans)
    lengths = sorted(ns for ns, _ in took.values())
    shown = sorted(took, key=lambda value: (-took[value][0], value))[:SHOWN]
    return LabelReport(
        key=key,
        count=len(took),
        usual_ns=lengths[len(lengths) // 2] if lengths else None,
        values=[_line(value, *took[value], sums.get(value), placed.get(value, 0.0)) for value in shown],
    )


def _took(reader: Reader, spans: Held) -> dict[str, tuple[int, tuple[int, ...]]]:
    """How long each value held in the process where it did longest, and for which processes."""
    pids = dict(reader.rows("SELECT id, pid FROM process"))
    feeding = {row[0] for row in reader.rows("SELECT DISTINCT process_id FROM thread_second WHERE feeder")}
    found: dict[str, tuple[int, tuple[int, ...]]] = {}
    for process_id, mine in spans.items():
        if process_id not in feeding:
            continue
        held: dict[str, int] = {}
        for span in mine:
            held[span.value] = held.get(span.value, 0) + span.end_ns - span.start_ns
        for value, ns in held.items():
            longest, who = found.get(value, (0, ()))
            found[value] = (max(longest, ns), (*who, pids.get(process_id, 0)))
    return found


def _line(value: str, took_ns: int, pids: tuple[int, ...], ns: Floats | None, known: float) -> LabelTime:
    total = 0.0 if ns is None else float(ns.sum())
    time = (
        {}
        if ns is None
        else {name: round(each) for name, each in zip(BUCKET_NAMES, ns.tolist(), strict=True)}
    )
    return LabelTime(
        value,
        pids,
        took_ns,
        {name: each for name, each in time.items() if each},
        known / total if total else None,
    )


def _feeding(reader: Reader, when: TimeRange, spans: Held) -> Iterator[tuple[int, int, _Seconds]]:
    """Threads that feed a GPU, of processes that a label holds for."""
    ends = dict(reader.rows("SELECT start_ns, MAX(end_ns) FROM window GROUP BY start_ns"))
    over = {row[0]: row[1] or when.to_ns for row in reader.rows("SELECT id, end_ns FROM process")}
    rows = reader.rows(
        f"SELECT process_id, tid, start_ns, {_SUMS} FROM thread_second WHERE feeder"
        " AND start_ns >= ? AND start_ns < ? GROUP BY process_id, tid, start_ns ORDER BY 1, 2, 3",
        (when.from_ns - 2_000_000_000, when.to_ns),
    )
    for (process_id, tid), group in groupby(rows, key=lambda row: row[:2]):
        if process_id in spans:
            yield process_id, tid, _seconds(list(group), ends, over[process_id])


def _seconds(rows: list[tuple[Any, ...]], ends: dict[int, int], over_ns: int) -> _Seconds:
    """A thread is accounted for from some instant of its first second to some of its last."""
    ns = np.array([row[3:] for row in rows], np.float64)
    lengths = ns.sum(axis=1).astype(np.int64)
    starts = np.array([row[2] for row in rows], np.int64)
    until = np.minimum([ends.get(row[2], row[2]) for row in rows], over_ns)
    until = np.maximum(until, starts + lengths)
    until[:-1] = np.minimum(until[:-1], starts[1:])
    if len(rows) > 1:
        until[-1] = starts[-1] + lengths[-1]
    starts[0] = max(starts[0], until[0] - lengths[0])
    return _Seconds(starts, until, ns)


def _with_earlier(seconds: _Seconds, placed: Placed) -> Placed:
    """Waits are recorded from a thread's first call on: others of that second were before it."""
    at = int(_index(placed.starts[:1], seconds.starts, seconds.ends)[0]) if len(placed.starts) else -1
    if at < 0:
        return placed
    own, _ = placed.between(np.array([seconds.starts[at], seconds.ends[at]]))
    rest = np.where(OFF_CPU, np.maximum(seconds.ns[at] - own[0], 0), 0)
    begin, first = int(seconds.starts[at]), int(placed.starts[0])
    ns = int(min(rest.sum(), first - begin))
    if ns <= 0:
        return placed
    return Placed(
        np.append(first - ns, placed.starts), np.append(first, placed.ends),
        np.concatenate([[rest * (ns / rest.sum())], placed.ns]),
    )  # fmt: skip


def _cut(seconds: _Seconds, placed: Placed, spans: list[Span]) -> tuple[Floats, Floats]:
    """For each span its time by bucket, and how much of it is known to be its own."""
    edges = [each for span in spans for each in (span.start_ns, span.end_ns)]
    bounds = np.unique(np.concatenate([seconds.starts, seconds.ends, np.array(edges, np.int64)]))
    begins, lengths = bounds[:-1], np.diff(bounds).astype(np.float64)
    of_second = _index(begins, seconds.starts, seconds.ends)
    own, covered = placed.between(bounds)
    kept = of_second >= 0
    begins, lengths, own, covered = begins[kept], lengths[kept], own[kept], covered[kept]
    of_second = of_second[kept]
    count = len(seconds.starts)
    own = own * _at_most(seconds.ns, _added(own, of_second, count))[of_second]
    rest = np.maximum(seconds.ns - _added(own, of_second, count), 0)
    free = np.maximum(lengths - covered, 0)
    empty = np.bincount(of_second, free, count) <= 0
    free = np.where(empty[of_second], lengths, free)
    share = free / np.bincount(of_second, free, count)[of_second]
    time = own + rest[of_second] * share[:, None]
    of_span = _index(begins, np.array(edges[::2], np.int64), np.array(edges[1::2], np.int64))
    inside = of_span >= 0
    total = _added(time[inside], of_span[inside], len(spans))
    return total, _added(own[inside], of_span[inside], len(spans)).sum(axis=1)


def _index(at: Ints, starts: Ints, ends: Ints) -> Ints:
    """Which interval each instant lies in; -1: in none."""
    found = np.searchsorted(starts, at, side="right") - 1
    return np.where((found >= 0) & (at < ends[np.maximum(found, 0)]), found, -1)


def _added(cells: Floats, into: Ints, count: int) -> Floats:
    total = np.zeros((count, BUCKETS))
    np.add.at(total, into, cells)
    return total


def _at_most(wanted: Floats, given: Floats) -> Floats:
    """What a second's bucket holds bounds what is placed in it."""
    return np.divide(np.minimum(wanted, given), given, out=np.ones_like(given), where=given > 0)


# What one thread is known to have done and when: its recorded calls and waits.


BUCKETS = len(BUCKET_NAMES)
RUNQUEUE = BUCKET_NAMES.index("runqueue")
NESTED = 1  # event.flags of a call made inside another
_SPLIT = ", ".join(f"e.{column}" for column in BUCKET_COLUMNS)
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Placed:
    """Calls and waits, one after the other, and what each was spent on."""

    starts: Ints
    ends: Ints
    ns: Floats  # (n, buckets)

    def between(self, bounds: Ints) -> tuple[Floats, Floats]:
        """Time of them between each two bounds: by bucket, and covered by them."""
        columns = [np.diff(self._until(bounds, column)) for column in self.ns.T]
        return np.stack(columns, axis=1), np.diff(self.covered(bounds))

    def covered(self, instants: Ints) -> Floats:
        """How much time they take up before each instant."""
        return self._until(instants, (self.ends - self.starts).astype(np.float64))

    def _until(self, instants: Ints, column: Floats) -> Floats:
        if not len(column):
            return np.zeros(len(instants))
        after = np.cumsum(column)
        edges = np.stack([self.starts, self.ends], axis=1).ravel()
        return np.asarray(np.interp(instants, edges, np.stack([after - column, after], axis=1).ravel()))


def recorded(reader: Reader, when: TimeRange, tid: int, process_id: int) -> Placed:
    """Outermost calls with their split, and waits outside of them."""
    rows: list[tuple[Any, ...]] = []
    for first, last in reader.id_ranges(when.from_ns, when.to_ns):
        between = (first, last, tid, process_id)
        rows += reader.rows(
            f"SELECT e.ts_ns, e.ts_ns + e.duration_ns, {_SPLIT} FROM event e JOIN op o ON o.id = e.op_id"
            " WHERE e.id BETWEEN ? AND ? AND e.tid = ? AND e.process_id = ? AND e.duration_ns > 0"
            f" AND o.layer IN ('runtime', 'driver', 'graph', 'nccl') AND e.flags & {NESTED} = 0",
            between,
        )
        rows += [
            (start, end, *_wait(bucket, end - start, runqueue))
            for start, end, bucket, runqueue in reader.rows(
                "SELECT e.ts_ns, e.ts_ns + e.duration_ns, w.bucket, w.runqueue_ns"
                " FROM event e JOIN wait_detail w ON w.event_id = e.id"
                " WHERE e.id BETWEEN ? AND ? AND e.tid = ? AND e.process_id = ? AND e.duration_ns > 0"
                " AND w.call_op_id IS NULL",
                between,
            )
        ]
    return _in_order(np.array(sorted(rows), np.int64).reshape(-1, 2 + BUCKETS))


def _wait(bucket: int, ns: int, runqueue_ns: int) -> list[int]:
    split = [0] * BUCKETS
    ready_ns = min(runqueue_ns, ns)
    split[bucket] += ns - ready_ns
    split[RUNQUEUE] += ready_ns
    return split


def _in_order(rows: Ints) -> Placed:
    """What overlaps an earlier one is left out: a thread does one thing at a time."""
    reached = np.concatenate([[0], np.maximum.accumulate(rows[:, 1])[:-1]]) if len(rows) else np.zeros(0)
    rows = rows[rows[:, 0] >= reached]
    return Placed(rows[:, 0], rows[:, 1], rows[:, 2:].astype(np.float64))
