"""What jobs said they were doing, on a zoomed timeline: a row of each process and key."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ingero.serve.answers.timeline_labels import END
from ingero.serve.answers.timeline_rows import Asked, tidy
from ingero.serve.answers.zoom_tracks import Names, View, ZoomTrack


def labels(asked: Asked, view: View, names: Names) -> Iterator[ZoomTrack]:
    """Values that held for less than a point are one, named after the one that held longest."""
    rows = asked.rows(
        f"SELECT a.node_id, a.process_id, a.pid, k.text, a.start_ns, a.value, COUNT(*),"
        f" MAX({END} - a.start_ns),"
        f" CASE WHEN {END} - a.start_ns < ? THEN (a.start_ns - ?) / ? ELSE -a.id END AS point"
        " FROM annotation a LEFT JOIN string k ON k.id = a.key_id"
        " LEFT JOIN process p ON p.id = a.process_id LEFT JOIN recording r ON r.id = a.recording_id"
        f" WHERE {END} >= ? AND a.start_ns < ?{asked.of_process('a')}"
        " GROUP BY a.node_id, a.process_id, a.pid, k.text, point"
        " ORDER BY a.node_id, a.process_id, a.pid, k.text, a.start_ns",
        (view.bin_ns, view.from_ns, view.bin_ns, *asked.between),
    )
    for (node_id, process_id, pid, key), group in groupby(rows, key=lambda row: row[:4]):
        track = ZoomTrack(
            kind="labels",
            node=asked.tracks.node(node_id)[0],
            process=asked.tracks.process(node_id, process_id, pid).name,
            pid=pid,
            title=tidy(str(key or "?"), 64),
        )
        for *_, start, value, count, longest, point in group:
            track.start_ns.append(start - view.from_ns if count == 1 else point * view.bin_ns)
            track.length_ns.append(longest if count == 1 else view.bin_ns)
            track.name.append(names.number(f"{track.title} {tidy(str(value), 128)}", "label"))
            track.count.append(count)
            track.longest_ns.append(longest)
        yield track
