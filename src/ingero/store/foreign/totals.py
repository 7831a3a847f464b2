"""Per-operation totals: the file's own per-minute aggregates, which count every event.

Where the stored rows of a minute are all there were, they give the same numbers by
second and true percentiles. Where they are fewer, the aggregate stands for the whole
minute and there are no percentiles: rows are stored because they were slow. Without
an aggregate the rows are all that is known, and the count is marked as not exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingero.model import histogram
from ingero.store.foreign.events import EXIT, TASK_EXIT, THREAD_EXIT
from ingero.store.foreign.source import Conversion
from ingero.store.schema import NODE_SHIFT, SEQ_MASK
from ingero.units import MINUTE, SECOND

SHARES = (0.50, 0.95, 0.99)
LARGEST = 1 << 60  # a total above is damage, and sums of it would not fit
Key = tuple[int, int, int]  # minute, operation, pid


@dataclass(frozen=True, slots=True)
class Total:
    """One aggregate of the file."""

    count: int
    stored: int
    sum_ns: int
    min_ns: int | None
    max_ns: int | None
    bytes: int | None


def fetch(rows: Iterable[Any], *names: str) -> NDArray[np.void]:
    """Rows of integers as columns by name."""
    return np.fromiter(rows, np.dtype([(name, np.int64) for name in names]))


def read(work: Conversion) -> dict[int, dict[Key, Total]]:
    """The file's aggregates by node; those whose node is not known are counted and left out."""
    go, table = work.go, "event_aggregates"
    if not go.has(table, "bucket", "source", "op", "count"):
        return {}
    names = ("bucket", "source", "op", "pid", "count", "stored", "sum_dur", "min_dur", "max_dur", "sum_arg0")
    columns = ", ".join(go.whole(table, name) for name in names)
    op_ids = {(s, o): (i, b) for s, o, i, b in work.out.execute(_OPERATIONS)}
    op_ids[3, EXIT] = op_ids.pop((3, TASK_EXIT))
    owner = _owners(work)
    found: dict[int, dict[Key, Total]] = {}
    for row in go.rows(f"SELECT {columns} FROM {table}"):
        bucket, source, op, pid, count = row[:5]
        known = op_ids.get((source, op))
        node_id = owner.get(pid or 0, work.sole_node())
        if known is None or node_id is None or not _sound(row):
            work.problems["aggregate_unreadable" if known else "unknown_operation"] += 1
            continue
        key = (bucket // MINUTE * MINUTE, known[0], pid or 0)
        if count:
            found.setdefault(node_id, {})[key] = _total(row, bool(known[1]))
    return found


_OPERATIONS = "SELECT f.source, f.op, f.id, o.bytes_known FROM foreign_op f JOIN op o ON o.id = f.id"


def _owners(work: Conversion) -> dict[int, int]:
    """Whose a PID is, where only one node has it."""
    nodes: dict[int, set[int]] = {}
    for node_id, pid in work.process_ids:
        nodes.setdefault(pid, set()).add(node_id)
    return {pid: next(iter(each)) for pid, each in nodes.items() if len(each) == 1}


def _sound(row: tuple[Any, ...]) -> bool:
    bucket, _, _, pid, count, *numbers = row
    whole = all(value is None or 0 <= value < LARGEST for value in numbers)
    return (
        whole
        and bucket is not None
        and count is not None
        and 0 <= bucket < 1 << 62
        and 0 <= count < LARGEST
        and (pid is None or 0 <= pid < 1 << 32)
    )


def _total(row: tuple[Any, ...], bytes_known: bool) -> Total:
    count, stored, sum_ns, low, high, size = row[4:]
    timed = bool(high)
    return Total(
        count,
        stored or 0,
        sum_ns or 0,
        low if timed else None,
        high if timed else None,
        size if bytes_known else None,
    )


def totals(work: Conversion, aggregates: dict[int, dict[Key, Total]]) -> None:
    """Rows of operation_second, from aggregates and stored rows."""
    for node_id in work.nodes:
        rows, known = _events(work, node_id), aggregates.get(node_id, {})
        keys, inverse, counts = np.unique(
            np.stack([rows["ended"] // MINUTE * MINUTE, rows["op"], rows["pid"]], axis=1),
            axis=0, return_inverse=True, return_counts=True,
        )  # fmt: skip
        seen = {(int(k[0]), int(k[1]), int(k[2])): int(n) for k, n in zip(keys, counts, strict=True)}
        exact = np.array([_exactness(known.get(key), count) for key, count in seen.items()], np.int64)
        whole = {key: total for key, total in known.items() if seen.get(key, 0) < total.count}
        place = _Places(work, node_id)
        _insert(work, _from_totals(work, node_id, whole, place))
        by_row = exact[inverse.reshape(-1)] if len(rows) else np.zeros(0, np.int64)
        _insert(work, _from_rows(work, node_id, rows[by_row >= 0], by_row[by_row >= 0], place))
        work.problems["row_not_in_file"] += sum(
            max(0, total.stored - seen.get(key, 0)) for key, total in known.items()
        )


def _exactness(total: Total | None, rows: int) -> int:
    """1: the rows are all there were; 0: at least these; -1: the aggregate knows better."""
    if total is None or rows > total.count:
        return 0
    return 1 if rows == total.count else -1


def _events(work: Conversion, node_id: int) -> NDArray[np.void]:
    first = node_id << NODE_SHIFT
    found = work.out.execute(
        f"SELECT CASE WHEN op_id IN ({_op(EXIT)}, {_op(THREAD_EXIT)}) THEN {_op(TASK_EXIT)} ELSE op_id END,"
        " COALESCE(pid, 0), ts_ns, COALESCE(duration_ns, -1),"
        " ts_ns + CASE WHEN source IN (3, 5, 7) THEN COALESCE(duration_ns, 0) ELSE 0 END,"
        " COALESCE(CASE source WHEN 5 THEN arg1 ELSE bytes END, -1), COALESCE(ret <> 0, 0) FROM event"
        " WHERE id BETWEEN ? AND ?",
        (first, first + SEQ_MASK),
    )
    return fetch(found, "op", "pid", "start", "took", "ended", "bytes", "error")


def _op(number: int) -> str:
    return f"(SELECT id FROM foreign_op WHERE source = 3 AND op = {number})"


class _Places:
    """The instant a row is stored under: never before its recording began, never after it ended."""

    def __init__(self, work: Conversion, node_id: int) -> None:
        mine = sorted((r.started_ns, r.last_ns) for r in work.recordings if r.node_id == node_id) or [(0, 0)]
        self._starts = np.array([start for start, _ in mine], np.int64)
        self._ends = np.array([end for _, end in mine], np.int64)

    def of(self, bucket: NDArray[np.int64], inside: NDArray[np.int64]) -> NDArray[np.int64]:
        at = np.maximum(np.searchsorted(self._starts, inside, side="right") - 1, 0)
        return np.minimum(np.maximum(bucket, self._starts[at]), np.maximum(self._ends[at], self._starts[at]))


Row = tuple[Any, ...]
_COLUMNS = (
    "node_id, process_id, pid, op_id, caller, start_ns, count, exact, sum_ns, min_ns, max_ns, p50_ns, p95_ns,"
    " p99_ns, bytes, errors, recorded, dropped, slots"
)


def _insert(work: Conversion, rows: Iterable[Row]) -> None:
    marks = ", ".join("?" * (_COLUMNS.count(",") + 1))
    work.out.executemany(f"INSERT INTO operation_second ({_COLUMNS}) VALUES ({marks})", rows)


def _from_totals(work: Conversion, node_id: int, whole: dict[Key, Total], place: _Places) -> Iterator[Row]:
    for (minute, op_id, pid), total in sorted(whole.items()):
        bucket = np.array([minute], np.int64)
        # The recording may have begun within this minute: its start is then where the row belongs.
        start = int(place.of(bucket, bucket + MINUTE - 1)[0])
        yield (
            node_id, work.process_ids.get((node_id, pid)), pid, op_id, 0, start, total.count, 1, total.sum_ns,
            total.min_ns, total.max_ns, None, None, None, total.bytes, 0, total.stored, 0, b"",
        )  # fmt: skip


def _from_rows(
    work: Conversion, node_id: int, rows: NDArray[np.void], exact: NDArray[np.int64], place: _Places
) -> Iterator[Row]:
    if not len(rows):
        return
    second = rows["start"] // SECOND * SECOND
    start = place.of(second, rows["start"])
    keys, inverse = np.unique(
        np.stack([start, rows["op"], rows["pid"], exact], axis=1), axis=0, return_inverse=True
    )
    order = np.argsort(inverse.reshape(-1), kind="stable")
    edges = np.searchsorted(inverse.reshape(-1)[order], np.arange(len(keys) + 1))
    for at, (begin, op_id, pid, sure) in enumerate(keys.tolist()):
        members = rows[order[edges[at] : edges[at + 1]]]
        head = (node_id, work.process_ids.get((node_id, pid)), pid, op_id, 0, begin, len(members), sure)
        yield (*head, *_statistics(members))


def _statistics(members: NDArray[np.void]) -> Row:
    took = members["took"][members["took"] >= 0]
    sized = members["bytes"] >= 0
    sizes = members["bytes"][sized & (members["error"] == 0)]  # what failed took and moved nothing
    slots = np.bincount(histogram.slot_of(took), minlength=histogram.SLOTS)
    low, high = (int(took.min()), int(took.max())) if len(took) else (None, None)
    p50, p95, p99 = histogram.percentiles(slots, SHARES, low, high)
    size = int(sizes.sum()) if sized.any() else None
    errors = int(members["error"].sum())
    return (
        int(took.sum()), low, high, p50, p95, p99, size, errors, len(members), 0, histogram.encode(slots),
    )  # fmt: skip
