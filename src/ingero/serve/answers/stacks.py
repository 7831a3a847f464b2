"""Where calls and waits come from: the stacks recorded with them, most time first.

Time is that of the stored rows, each times the calls it stands for. Nested calls are
left out: their time is in the call around them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ingero.model.finding import StackFrame
from ingero.model.report import Loss
from ingero.serve.answers.losses import losses_within
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.sense import checked, sense_made_of
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store.location import default_path
from ingero.store.reader import Reader

DEEPEST = 64
_TOP = """
    SELECT o.name, o.layer, e.stack_hash, COUNT(*), SUM(e.weight), SUM(e.duration_ns * e.weight),
        MAX(e.duration_ns), MIN(e.pid), COUNT(DISTINCT e.pid)
    FROM event e
    JOIN op o ON o.id = e.op_id
    WHERE e.id BETWEEN ? AND ? AND e.ts_ns >= ? AND e.ts_ns < ? AND e.duration_ns IS NOT NULL
        AND COALESCE(e.flags, 0) & 1 = 0 AND (?5 IS NULL OR e.pid = ?5) AND (?6 IS NULL OR o.name = ?6)
    GROUP BY o.id, e.stack_hash"""
_FRAMES = "SELECT kind, function, file, line, module FROM stacks WHERE stack_hash = ? ORDER BY depth LIMIT ?"


class StackTime(msgspec.Struct, frozen=True):
    """One operation from one place."""

    op: str
    layer: str
    rows: int  # stored
    calls: int  # they stand for
    sum_ns: int
    max_ns: int
    pid: int | None  # the lowest, of `processes`
    processes: int
    frames: list[StackFrame]  # innermost first


class StacksAnswer(msgspec.Struct, frozen=True):
    """The places with most time; `without` rows had no stack."""

    window: WindowAnswer
    stacks: list[StackTime]
    rows: int
    without: int
    losses: list[Loss]


def get_stacks(
    db: Path | None, wanted: Range, pid: int | None = None, op: str | None = None, limit: int = 10
) -> StacksAnswer:
    """The `limit` places with most time."""
    with Reader(db or default_path()) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        found = _grouped(reader, when, pid, op)
        with sense_made_of(reader):
            top = sorted((row for row in found if row[2] is not None), key=lambda row: -(row[5] or 0))[:limit]
            answer = StacksAnswer(
                WindowAnswer(when.from_ns, when.to_ns),
                [_stack(reader, row) for row in top],
                sum(row[3] for row in found),
                sum(row[3] for row in found if row[2] is None),
                losses_within(reader, when.from_ns, when.to_ns),
            )
            return checked(answer)


def _grouped(reader: Reader, when: TimeRange, pid: int | None, op: str | None) -> list[tuple[Any, ...]]:
    return [
        row
        for first, last in reader.id_ranges(when.from_ns, when.to_ns)
        for row in reader.rows(_TOP, (first, last, when.from_ns, when.to_ns, pid, op))
    ]


def _stack(reader: Reader, row: tuple[Any, ...]) -> StackTime:
    op, layer, stack_hash, rows, calls, sum_ns, max_ns, pid, processes = row
    frames = [StackFrame(*frame) for frame in reader.rows(_FRAMES, (stack_hash, DEEPEST))]
    return StackTime(op, layer, rows, calls or 0, sum_ns or 0, max_ns or 0, pid, processes, frames)
