"""What one thread is known to have done and when: its recorded calls and waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingero.model.window import BUCKET_NAMES
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.store.schema import BUCKET_COLUMNS

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
