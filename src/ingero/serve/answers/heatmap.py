"""How long calls took, over time: a histogram of latencies for each stretch of time, node and operation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ingero.model import histogram
from ingero.serve.answers.operations import (
    Filters,
    OperationStats,
    conditions,
    oldest_second_ns,
    operation_stats,
)
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.sense import checked, sense_made_of
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.units import MINUTE, SECOND

COLUMNS = 120
OPERATIONS = 12
SLOTS_PER_ROW = 4  # half an octave


class OperationHeat(msgspec.Struct, frozen=True):
    """Calls by column and row: three lists of the same length."""

    node: str
    layer: str
    op: str
    count: int
    exact: bool  # false: an estimate, right within `count_error`
    count_error: int
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    sum_ns: int
    column: list[int]
    row: list[int]
    calls: list[int]


class HeatmapAnswer(msgspec.Struct, frozen=True):
    """The operations with most time. Row r is from row_ns[r] to row_ns[r + 1]."""

    window: WindowAnswer
    column_ns: int
    columns: int
    row_ns: list[int]
    operations: list[OperationHeat]


def get_heatmap(
    db: Path | None, wanted: Range, filters: Filters, limit: int = OPERATIONS, node: str | None = None
) -> HeatmapAnswer:
    """At most `limit` operations."""
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        with reader.trouble_told(), sense_made_of(reader):
            stats = operation_stats(reader, when, filters).operations[:limit]
            return checked(_heat(reader, when, filters, stats))


def _heat(reader: Reader, when: TimeRange, filters: Filters, stats: list[OperationStats]) -> HeatmapAnswer:
    seconds = max(1, -(-when.length_ns // (COLUMNS * SECOND)))
    # Old seconds are rolled up and gone: then a minute is the least there is.
    kept = _have_seconds(reader, when)
    unit, table = (SECOND, "operation_second") if kept else (MINUTE, "operation_minute")
    column_ns = -(-seconds * SECOND // unit) * unit
    columns = max(1, -(-(when.length_ns - 1) // column_ns))  # the last instant is a record, and excluded
    counts = _counts(reader, when, filters, table, stats, column_ns, columns)
    used = np.flatnonzero(counts.sum(axis=(0, 1)))
    low, high = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
    bounds = histogram.lower_bounds()[::SLOTS_PER_ROW][low : high + 1]
    operations = [_operation(each, counts[at, :, low:high]) for at, each in enumerate(stats)]
    window = WindowAnswer(when.from_ns, when.to_ns)
    return HeatmapAnswer(window, column_ns, columns, [round(bound) for bound in bounds], operations)


def _have_seconds(reader: Reader, when: TimeRange) -> bool:
    """Of every node that recorded then."""
    begun = {each.node_id: each.started_ns for each in reversed(reader.recordings())}
    oldest = {node_id: oldest_second_ns(reader, node_id) for node_id in begun}
    return any(each is not None for each in oldest.values()) and all(
        each <= max(when.from_ns, begun[node_id]) + MINUTE
        for node_id, each in oldest.items()
        if each is not None
    )


def _counts(
    reader: Reader, when: TimeRange, filters: Filters, table: str, stats: list[OperationStats],
    column_ns: int, columns: int,
) -> NDArray[np.uint64]:  # fmt: skip
    """Calls by operation of a node, column and row."""
    wanted = {(each.node, each.layer, each.op): at for at, each in enumerate(stats)}
    ops = {row[0]: row[1:] for row in reader.rows("SELECT id, layer, name FROM op")}
    nodes = dict(reader.rows("SELECT id, name FROM node"))
    chosen = ", ".join(str(op) for op, name in ops.items() if any(name == key[1:] for key in wanted))
    where, parameters = conditions(reader, filters)
    rows: list[tuple[Any, ...]] = reader.rows(
        f"SELECT node_id, op_id, (start_ns - ?) / ?, slots FROM {table}"
        f" WHERE start_ns >= ? AND start_ns < ? AND op_id IN ({chosen or 'NULL'}){where}",
        (when.from_ns, column_ns, when.from_ns, when.to_ns, *parameters),
    )
    groups, blobs = [], []
    for node_id, op, at, slots in rows:
        number = wanted.get((nodes.get(node_id), *ops[op]))
        if number is not None:
            groups.append(number * columns + min(max(at, 0), columns - 1))
            blobs.append(slots)
    merged = histogram.merge(blobs, groups, len(stats) * columns)
    rows_of_slots = merged.shape[-1] // SLOTS_PER_ROW  # said, for there may be no operation at all
    by_row = merged.reshape(len(stats), columns, rows_of_slots, SLOTS_PER_ROW).sum(axis=3)
    return np.asarray(by_row, np.uint64)


def _operation(stats: OperationStats, counts: NDArray[np.uint64]) -> OperationHeat:
    column, row = np.nonzero(counts)
    return OperationHeat(
        stats.node, stats.layer, stats.op, stats.count, stats.exact, stats.count_error,
        stats.p50_ns, stats.p99_ns, stats.max_ns, stats.sum_ns,
        column.tolist(), row.tolist(), counts[column, row].tolist(),
    )  # fmt: skip
