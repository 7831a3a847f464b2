"""Collectives on the timeline: the ranks of a communicator one under the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from ingero.serve.answers.timeline_rows import Asked
from ingero.serve.answers.tracks import Item, Lanes, Slice
from ingero.units import clean


def collectives(asked: Asked) -> Iterator[Item]:
    """From a rank's arrival to the last rank's, where all were seen."""
    rows = asked.rows(
        "SELECT c.comm_hash, c.rank, n.name, e.ts_ns, e.duration_ns, e.op_id, c.seq, e.bytes, e.id,"
        " CASE WHEN r.seen = r.nranks AND r.rank_sum = r.nranks * (r.nranks - 1) / 2 THEN r.last_ns END"
        " FROM collective c JOIN event e ON e.id = c.event_id LEFT JOIN node n ON n.id = e.node_id"
        " LEFT JOIN collective_round r"
        " ON r.comm_hash = c.comm_hash AND r.seq = c.seq AND r.op_id = e.op_id"
        " WHERE c.comm_hash IS NOT NULL AND c.seq IS NOT NULL AND c.rank IS NOT NULL AND c.peer IS NULL"
        f" AND e.ts_ns >= ? AND e.ts_ns < ?{asked.of_process('e')}"
        " ORDER BY c.comm_hash, c.rank, e.ts_ns, e.id",
        asked.between,
    )
    for (comm, rank, node), group in groupby(rows, key=lambda row: row[:3]):
        lanes = Lanes()
        label = f"{comm & (1 << 64) - 1:016x} rank {rank:4} {clean(node or '?', 128)}"
        for _, _, _, at_ns, took, op, seq, size, _, last in group:
            end = last if last is not None and last > at_ns else at_ns + (took or 0)
            lane = lanes.take(at_ns, end)
            track = asked.tracks.lane(
                asked.tracks.collectives(), f"{label}{'' if not lane else f' +{lane}'}", rank
            )
            yield _arrival(track.id, at_ns, end, f"{asked.ops[op][1]} #{seq}", last, size)


def _arrival(track: int, at_ns: int, end: int, name: str, last: int | None, size: int | None) -> Slice:
    found: list[tuple[str, Any]] = [] if size is None else [("bytes", size)]
    if last is None:
        found.append(("note", "not all ranks were seen"))
    else:
        found.append(("waited for the last rank, ns", max(0, last - at_ns)))
    return Slice(track, at_ns, end, name, "collective", tuple(found))
