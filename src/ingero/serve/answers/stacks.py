"""Where calls and waits come from: the stacks recorded with them, most time first.

Time is that of the stored rows, each times the calls it stands for. Nested calls are
left out: their time is in the call around them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ingero.correlate.activity import source_of
from ingero.model.finding import SourceLine, StackFrame
from ingero.model.report import Loss
from ingero.model.stack import Frame
from ingero.serve.answers.missing import losses_within
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.sense import checked, sense_made_of
from ingero.serve.answers.whose import EVERYBODY, Whose, only_theirs
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.store.sites import SiteReader

DEEPEST = 64
_TOP = """
    SELECT o.name, o.layer, e.stack_hash, COUNT(*), SUM(e.weight), SUM(e.duration_ns * e.weight),
        MAX(e.duration_ns), n.name, e.process_id, e.pid
    FROM event e
    JOIN op o ON o.id = e.op_id
    LEFT JOIN node n ON n.id = e.node_id
    WHERE e.id BETWEEN ? AND ? AND e.ts_ns >= ? AND e.ts_ns < ? AND e.duration_ns IS NOT NULL
        AND COALESCE(e.flags, 0) & 1 = 0 AND (?5 IS NULL OR e.pid = ?5) AND (?6 IS NULL OR o.name = ?6)
        @THEIRS@ GROUP BY o.id, e.stack_hash, n.name, e.process_id, e.pid"""
Row = tuple[Any, ...]


class StackTime(msgspec.Struct, frozen=True):
    """One operation from one place."""

    op: str
    layer: str
    rows: int  # stored
    calls: int  # they stand for
    sum_ns: int
    max_ns: int
    node: str | None  # of the first of `processes`, and its PID
    pid: int | None
    processes: int
    source: SourceLine | None  # the user's own line among the frames, else the innermost Python one
    frames: list[StackFrame]  # innermost first


class StacksAnswer(msgspec.Struct, frozen=True):
    """The places with most time; `without` rows had no stack."""

    window: WindowAnswer
    stacks: list[StackTime]
    rows: int
    without: int
    losses: list[Loss]


def get_stacks(
    db: Path | None,
    wanted: Range,
    pid: int | None = None,
    op: str | None = None,
    limit: int = 10,
    node: str | None = None,
    whose: Whose = EVERYBODY,
) -> StacksAnswer:
    """The `limit` places with most time; of one process or tenant where asked for."""
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        rows = _rows(reader, when, pid, op, whose)
        with reader.trouble_told(), sense_made_of(reader):
            found = _together(rows)
            top = sorted((row for row in found if row[2]), key=lambda row: -row[5])[:limit]
            # Stacks are the same on every node: the reader needs none for them.
            frames = SiteReader(reader.connection, 0).stacks(row[2] for row in top)
            answer = StacksAnswer(
                WindowAnswer(when.from_ns, when.to_ns),
                [_stack(row, frames.get(row[2], ())) for row in top],
                sum(row[3] for row in found),
                sum(row[3] for row in found if not row[2]),
                losses_within(reader, when.from_ns, when.to_ns),
            )
            return checked(answer)


def _rows(reader: Reader, when: TimeRange, pid: int | None, op: str | None, whose: Whose) -> list[Row]:
    theirs, parameters = only_theirs(whose, "e.process_id")
    sql = _TOP.replace("@THEIRS@", theirs)
    return [
        row
        for first, last in reader.id_ranges(when.from_ns, when.to_ns)
        for row in reader.rows(sql, (first, last, when.from_ns, when.to_ns, pid, op, *parameters))
    ]


def _together(rows: Iterable[Row]) -> list[Row]:
    """Each place once, with those who were there: several recordings and processes may have it."""
    found: dict[Row, Row] = {}
    for op, layer, stack, *numbers, node, process_id, pid in rows:
        stored, calls, sum_ns, max_ns = (number or 0 for number in numbers)
        key = (op, layer, stack or 0)
        stored0, calls0, sum0, max0, people = found[key][3:] if key in found else (0, 0, 0, 0, set())
        people.add((node or "?", pid or 0, process_id or 0))
        found[key] = (*key, stored + stored0, calls + calls0, sum_ns + sum0, max(max_ns, max0), people)
    return list(found.values())


def _stack(row: Row, frames: tuple[Frame, ...]) -> StackTime:
    op, layer, _, rows, calls, sum_ns, max_ns, people = row
    node, pid, _ = min(people)
    shown = [
        StackFrame(each.kind, each.function or None, each.file, each.line, each.module)
        for each in frames[:DEEPEST]
    ]
    return StackTime(
        op, layer, rows, calls, sum_ns, max_ns, node if pid else None, pid or None, len(people),
        source_of(frames), shown,
    )  # fmt: skip
