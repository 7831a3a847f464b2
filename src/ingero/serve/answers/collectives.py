"""Collectives by communicator and rank: how many, how much, and who made the others wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ingero.model.report import Loss
from ingero.serve.answers.missing import losses_within
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.sense import checked, sense_made_of
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store.location import last_path
from ingero.store.reader import Reader

MOST_RANKS = 4096
# Numbers of ranks 0 to n-1, each once: only then is the last arrival known.
_RANKS = """
    SELECT c.comm_hash, c.nranks, c.rank, n.name, e.pid, o.name, COUNT(*), SUM(e.bytes),
        SUM(MAX(w.last_ns - e.ts_ns, 0)), MAX(w.last_ns - e.ts_ns), SUM(w.last_ns = e.ts_ns), COUNT(w.last_ns)
    FROM collective c
    CROSS JOIN event e ON e.id = c.event_id
    LEFT JOIN node n ON n.id = e.node_id
    LEFT JOIN op o ON o.id = e.op_id
    LEFT JOIN (
        SELECT comm_hash, seq, op_id, last_ns FROM collective_round
        WHERE seen = nranks AND rank_sum = nranks * (nranks - 1) / 2
    ) w ON w.comm_hash = c.comm_hash AND w.seq = c.seq AND w.op_id = e.op_id AND c.peer IS NULL
    WHERE c.event_id BETWEEN ? AND ? AND e.ts_ns >= ? AND e.ts_ns < ?
    GROUP BY c.comm_hash, c.nranks, c.rank, n.name, e.pid, o.name
    LIMIT ?"""


class RankTime(msgspec.Struct, frozen=True):
    """One rank's calls of one operation. Waiting is from its arrival to the last rank's."""

    communicator: str | None
    ranks: int | None
    rank: int | None
    node: str
    pid: int | None
    op: str
    calls: int
    bytes: int | None
    waited_ns: int | None  # None: never were all ranks seen
    longest_wait_ns: int | None
    came_last: int  # of `known` rounds
    known: int


class CollectivesAnswer(msgspec.Struct, frozen=True):
    """By communicator, operation and rank."""

    window: WindowAnswer
    ranks: list[RankTime]
    losses: list[Loss]


def get_collectives(db: Path | None, wanted: Range, node: str | None = None) -> CollectivesAnswer:
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        rows = _rows(reader, when)
        with sense_made_of(reader):
            found = sorted((_rank(row) for row in rows), key=_order)
            window = WindowAnswer(when.from_ns, when.to_ns)
            return checked(CollectivesAnswer(window, found, losses_within(reader, when.from_ns, when.to_ns)))


def _rows(reader: Reader, when: TimeRange) -> list[tuple[Any, ...]]:
    return [
        row
        for first, last in reader.id_ranges(when.from_ns, when.to_ns)
        for row in reader.rows(_RANKS, (first, last, when.from_ns, when.to_ns, MOST_RANKS))
    ]


def _rank(row: tuple[Any, ...]) -> RankTime:
    comm, ranks, rank, node, pid, op, calls, size, waited, longest, last, known = row
    name = None if comm is None else f"{comm & (1 << 64) - 1:016x}"
    return RankTime(
        name, ranks, rank, node or "?", pid, op or "?", calls, size, waited if known else None,
        max(longest, 0) if longest is not None else None, last or 0, known,
    )  # fmt: skip


def _order(each: RankTime) -> tuple[Any, ...]:
    return each.communicator or "", each.op, -1 if each.rank is None else each.rank, each.node
