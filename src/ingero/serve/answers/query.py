"""What `ingero query` asks: statistics by operation, or somebody's SQL.

Opens the database, asks and closes it. Rows of SQL are objects by column name; a
name that comes twice gets a number, so that no value is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ingero.errors import TargetError
from ingero.model.report import Loss
from ingero.serve.answers.kernels import KernelsAnswer, kernel_stats
from ingero.serve.answers.label_operations import LabelValue, values_by_tenant, values_of
from ingero.serve.answers.labels import NO_LABELS, Labels, held_by_all, is_said, label_times
from ingero.serve.answers.missing import losses_within
from ingero.serve.answers.operations import Filters, OperationStats, operation_stats
from ingero.serve.answers.sense import sense_made_of
from ingero.serve.answers.whose import NAMES, require_whose
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store import sql_process
from ingero.store.guard import Limits, Rows
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.units import clean

STORED_ROWS = (
    "COUNT, SUM and AVG here are over stored rows, and a row can represent several calls:"
    " SUM(weight) counts calls, SUM(duration_ns * weight) is their time"
)
QUICK_ROWS = 300_000  # looked through for kernels in a fifth of a second


class WindowAnswer(msgspec.Struct, frozen=True):
    """From and to, Unix-epoch nanoseconds."""

    from_ns: int
    to_ns: int


class StatisticsAnswer(msgspec.Struct, frozen=True):
    """Operations within the window, the one with most time first."""

    window: WindowAnswer
    counted_from: str  # now, last-record, recording, given
    recorded_ns: int
    operations: list[OperationStats]
    losses: list[Loss]


class LabelledAnswer(msgspec.Struct, frozen=True):
    """Operations for each value of a label, or each tenant, within the window; longest held first."""

    window: WindowAnswer
    counted_from: str
    key: str
    values: list[LabelValue]
    losses: list[Loss]


class SqlAnswer(msgspec.Struct, frozen=True):
    """Rows of a statement; truncated when there were more than the limit. Notes: how not to misread them."""

    columns: list[str]
    rows: list[dict[str, Any]]
    truncated: bool
    notes: list[str] = []


@dataclass(frozen=True)
class Range:
    """The time asked about, as written."""

    since: str | None = None
    start: str | None = None
    end: str | None = None


def ask_statistics(
    db: Path | None,
    wanted: Range,
    filters: Filters,
    limit: int,
    node: str | None = None,
    labels: Labels = NO_LABELS,
) -> StatisticsAnswer:
    """Per-operation statistics, of one node or a label where asked for; at most `limit` operations."""
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        if labels.wanted:
            return _while_held(reader, when, filters, labels, limit)
        found = operation_stats(reader, when, filters)
        return StatisticsAnswer(
            WindowAnswer(found.from_ns, found.to_ns),
            when.anchor,
            found.recorded_ns,
            found.operations[:limit],
            losses_within(reader, found.from_ns, found.to_ns),
        )


def _while_held(
    reader: Reader, when: TimeRange, filters: Filters, labels: Labels, limit: int
) -> StatisticsAnswer:
    with reader.trouble_told(), sense_made_of(reader):
        held = label_times(reader, when, labels.wanted)
        # Read is all of it: a sample stands for the calls since the one before, which may lie outside.
        (found,) = values_of(reader, when, filters, held.spans, 1, together=True)
    window = WindowAnswer(held.when.from_ns, held.when.to_ns)
    losses = losses_within(reader, window.from_ns, window.to_ns)
    return StatisticsAnswer(window, held.when.anchor, held.held_ns, found.operations[:limit], losses)


def ask_by_label(
    db: Path | None, wanted: Range, filters: Filters, limit: int, node: str | None, labels: Labels
) -> LabelledAnswer:
    """The same for each value of a label, at most `limit` values; where no job reported a label of that
    name, for each tenant."""
    assert labels.by is not None
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        with reader.trouble_told(), sense_made_of(reader):
            if labels.by in NAMES and not is_said(reader, labels.by):
                values = values_by_tenant(reader, when, filters, labels, labels.by, limit)
            else:
                spans = held_by_all(reader, when, labels.wanted, labels.by)
                values = values_of(reader, when, filters, spans, limit)
        losses = losses_within(reader, when.from_ns, when.to_ns)
        window = WindowAnswer(when.from_ns, when.to_ns)
        return LabelledAnswer(window, when.anchor, labels.by, values, losses)


def ask_kernels(
    db: Path | None, wanted: Range, filters: Filters, limit: int, node: str | None = None
) -> KernelsAnswer:
    """Statistics by process and kernel, of one node where asked for; at most `limit` kernels."""
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        return kernel_stats(reader, when, filters, limit)


def ask_kernels_if_quick(
    db: Path | None, wanted: Range, filters: Filters, limit: int
) -> KernelsAnswer | None:
    """The same where few enough rows have to be looked through, else None."""
    with Reader(db or last_path()) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        ranges = reader.id_ranges(when.from_ns, when.to_ns)
        if sum(last - first + 1 for first, last in ranges) > QUICK_ROWS:
            return None
        return kernel_stats(reader, when, filters, limit)


def ask_sql(db: Path | None, sql: str, limits: Limits, node: str | None = None) -> SqlAnswer:
    """One reading statement; it sees one node's rows only where asked for."""
    with Reader(db or last_path(), node) as reader:
        found = answer_sql(reader, sql, limits)
    columns = distinct(found.columns)
    rows = [dict(zip(columns, map(_plain, row), strict=True)) for row in found.rows]
    return SqlAnswer(columns, rows, found.truncated, [STORED_ROWS] if found.unweighted else [])


def distinct(columns: list[str]) -> list[str]:
    """`op, op` as `op, op_2`."""
    found: list[str] = []
    for column in columns:
        name, number = column, 2
        while name in found:
            name, number = f"{column}_{number}", number + 1
        found.append(name)
    return found


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


# Columns and rows of somebody's SQL, run under guard.


__all__ = ["Limits", "Rows", "answer_sql"]


def answer_sql(reader: Reader, sql: str, limits: Limits | None = None) -> Rows:
    """One reading statement; raises UsageError for bad SQL and StoreError for what takes too long."""
    return sql_process.run(reader, sql, limits)


# Whether the recording has what is asked for by name.
#
# An empty answer to a process that never was would look like one that did nothing.


_KNOWN = {
    "pid": ("process", "process", "pid = ?"),
    "op": ("operation", "op", "name = ? COLLATE NOCASE"),
}


def require_known(db: Path | None, filters: Filters, node: str | None = None) -> None:
    """Raises TargetError for the first that no part of the recording has."""
    asked = {name: getattr(filters, name) for name in _KNOWN if getattr(filters, name) is not None}
    if not asked and not filters.whose:
        return
    with Reader(db or last_path(), node) as reader:
        require_whose(reader, filters.whose)
        for name, value in asked.items():
            what, table, condition = _KNOWN[name]
            if not reader.rows(f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1", (value,)):
                shown = str(value) if name == "pid" else repr(clean(str(value), 60))
                raise TargetError(f"there is no {what} {shown} in this recording", hint=_there(reader, name))


def _there(reader: Reader, name: str) -> str:
    """What can be asked for instead."""
    if name == "op":
        return "`ingero query` lists those that were called."
    rows = reader.rows("SELECT DISTINCT pid, comm FROM process WHERE target ORDER BY first_seen_ns LIMIT 5")
    seen = ", ".join(f"{pid} ({clean(str(comm), 40)})" for pid, comm in rows)
    return f"It has {seen}." if seen else "It has no CUDA process."
