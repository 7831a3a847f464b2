"""Rows of many nodes as one answer: the node first, its times by our clock.

Rows are put one after the other: each node ran the statement over its own rows, so its
COUNT, AVG, ORDER BY and LIMIT are its own. What means the whole fleet is in
nodes_recordings (`--reduce`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, cast

import msgspec

from ingero.serve.answers.asked_nodes import (
    Fleet,
    FleetState,
    NodeAnswer,
    Question,
    about,
    ask,
    read,
    state_of,
)
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.query import Range, SqlAnswer, StatisticsAnswer, WindowAnswer, distinct
from ingero.serve.answers.several_nodes import all_losses

NODE = "node"
# Columns of the views that say when: Unix-epoch nanoseconds. A result has them by these names,
# or made something else of them, which only --reduce can correct.
INSTANTS = frozenset(
    {"timestamp", "timestamp_ns", "bucket_start_ns", "first_ns", "last_ns", "start_ns", "end_ns", "at_ns"}
)
_YEAR_2001_NS = 10**18  # below it a number is a duration
_NODE_ROWS = 10_000  # what one node gives at most


class FleetRows(msgspec.Struct, frozen=True):
    """Rows of all nodes that answered; `corrected` names the columns that are by our clock."""

    columns: list[str]
    rows: list[dict[str, Any]]
    truncated: bool
    notes: list[str]
    corrected: list[str]
    fleet: FleetState


class FleetStatistics(StatisticsAnswer, frozen=True):
    """Operations of all nodes that answered, most time first; shares are of each node's own time.

    `recorded_ns` is that of the node that recorded most.
    """

    truncated: bool
    fleet: FleetState


def ask_fleet_sql(fleet: Fleet, sql: str, limit: int) -> FleetRows:
    """The same statement on every node."""
    asked = Question("query", body={"sql": sql, "limit": min(limit, _NODE_ROWS)})
    replies = ask(fleet, asked)
    told = read(replies, lambda body: msgspec.json.decode(body, type=SqlAnswer))
    state = state_of(fleet, replies)
    answers = [cast(SqlAnswer, each.value) for each in told]
    named, rest = _shape(told)
    columns = [NODE, *(ours for ours, _ in rest)]
    parts = [_rows(each, named, rest) for each in told]
    kept = fair([len(part) for part in parts], limit)
    return FleetRows(
        columns=columns,
        rows=[row for part, count in zip(parts, kept, strict=True) for row in part[:count]],
        truncated=any(answer.truncated for answer in answers) or sum(kept) < sum(map(len, parts)),
        notes=[*dict.fromkeys(note for answer in answers for note in answer.notes), *_differing(told)],
        corrected=_corrected(told, columns),
        fleet=state,
    )


def ask_fleet_statistics(fleet: Fleet, wanted: Range, filters: Filters, limit: int) -> FleetStatistics:
    """Per-operation statistics of every node."""
    narrowed = {each.name: getattr(filters, each.name) for each in fields(Filters)}
    asked = about("operations", wanted, limit=min(limit, _NODE_ROWS), **narrowed)
    replies = ask(fleet, asked)
    told = read(replies, lambda body: msgspec.json.decode(body, type=StatisticsAnswer))
    state = state_of(fleet, replies)
    answers = [(cast(StatisticsAnswer, each.value), each.shift_ns) for each in told]
    found = [each for answer, _ in answers for each in answer.operations]
    found.sort(key=lambda each: -each.sum_ns)
    return FleetStatistics(
        window=WindowAnswer(
            min(answer.window.from_ns + shift_ns for answer, shift_ns in answers),
            max(answer.window.to_ns + shift_ns for answer, shift_ns in answers),
        ),
        counted_from=answers[0][0].counted_from,
        recorded_ns=max(answer.recorded_ns for answer, _ in answers),
        operations=found[:limit],
        losses=all_losses(answer.losses for answer, _ in answers),
        truncated=len(found) > limit,
        fleet=state,
    )


def fair(sizes: list[int], most: int) -> list[int]:
    """How many of each to keep so that all have a part: none gives way to another that has more."""
    kept = [0] * len(sizes)
    left = most
    waiting = sorted(range(len(sizes)), key=lambda at: sizes[at])
    while waiting:
        share = left // len(waiting)
        at = waiting.pop(0)
        kept[at] = min(sizes[at], share)
        left -= kept[at]
    return kept


def _shape(told: list[NodeAnswer]) -> tuple[bool, list[tuple[str, str]]]:
    """Whether the rows name their node themselves; and the other columns, ours and theirs."""
    names = list(dict.fromkeys(name for each in told for name in cast(SqlAnswer, each.value).columns))
    if all(map(_named, told)):
        return True, [(name, name) for name in names if name != NODE]
    return False, list(zip(distinct([NODE, *names])[1:], names, strict=True))


def _named(told: NodeAnswer) -> bool:
    """A column `node` that says something else is not the node."""
    answer = cast(SqlAnswer, told.value)
    return NODE in answer.columns and all(row.get(NODE) in told.names for row in answer.rows)


def _rows(told: NodeAnswer, named: bool, columns: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {NODE: row[NODE] if named else told.label}
        | {ours: _instant(theirs, row.get(theirs), told.shift_ns) for ours, theirs in columns}
        for row in cast(SqlAnswer, told.value).rows
    ]


def _instant(name: str, value: Any, shift_ns: int) -> Any:
    return value + shift_ns if shift_ns and _is_instant(name, value) else value


def _is_instant(name: str, value: Any) -> bool:
    return name in INSTANTS and isinstance(value, int) and value > _YEAR_2001_NS


def _corrected(told: list[NodeAnswer], columns: list[str]) -> list[str]:
    shifted = [cast(SqlAnswer, each.value).rows for each in told if each.shift_ns]
    return [
        name for name in columns if any(_is_instant(name, row.get(name)) for rows in shifted for row in rows)
    ]


def _differing(told: list[NodeAnswer]) -> Iterable[str]:
    """Versions may have other columns behind a `*`."""
    shapes = {tuple(cast(SqlAnswer, each.value).columns) for each in told}
    if len(shapes) > 1:
        yield "the nodes' answers have different columns; what a node does not have is NULL"
