"""What jobs said they were doing, on the timeline: a lane of each process and key."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ingero.serve.answers.timeline_rows import Asked, tidy
from ingero.serve.answers.tracks import Item, Slice

END = "COALESCE(a.end_ns, MAX(a.start_ns, MIN(COALESCE(p.end_ns, r.last_ns), r.last_ns)))"


def labels(asked: Asked) -> Iterator[Item]:
    """Each value as long as it held."""
    rows = asked.rows(
        f"SELECT a.node_id, a.process_id, a.pid, k.text, a.start_ns, {END} AS until_ns, a.value"
        " FROM annotation a LEFT JOIN string k ON k.id = a.key_id"
        " LEFT JOIN process p ON p.id = a.process_id LEFT JOIN recording r ON r.id = a.recording_id"
        f" WHERE {END} >= ? AND a.start_ns < ?{asked.of_process('a')}"
        " ORDER BY a.node_id, a.process_id, a.pid, k.text, a.start_ns, a.id",
        asked.between,
    )
    for (node_id, process_id, pid, key), group in groupby(rows, key=lambda row: row[:4]):
        name = tidy(str(key or "?"), 64)
        lane = asked.tracks.lane(asked.tracks.process(node_id, process_id, pid), name, -10).id
        reached = 0
        for *_, start_ns, end_ns, value in group:
            start_ns = max(start_ns, reached)
            reached = max(start_ns, end_ns)
            yield Slice(lane, start_ns, reached, f"{name} {tidy(str(value), 128)}", "label")
