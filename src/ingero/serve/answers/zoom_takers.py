"""Who had the core in each second that a thread waited for one."""

from __future__ import annotations

from bisect import bisect_right

from ingero.serve.answers.timeline_rows import Asked
from ingero.serve.answers.zoom_tracks import View, ZoomTrack
from ingero.units import SECOND, clean

NAMED = 3  # of each column
LEAST_SHARE = 0.01  # of a column: less is nobody's fault


def takers(asked: Asked, view: View, step: int, tracks: list[ZoomTrack]) -> None:
    """Put them on the tracks of threads; a column that nobody disturbed has none."""
    begin = view.from_ns - SECOND
    rows = asked.rows(
        "SELECT t.node_id, t.victim_pid, t.victim_tid, MIN(t.start_ns), s.text, t.pid, SUM(t.ns)"
        " FROM culprit t JOIN bucket b ON b.id = t.bucket LEFT JOIN string s ON s.id = t.comm_id"
        " WHERE b.name = 'runqueue' AND t.start_ns >= ? AND t.start_ns < ?"
        " GROUP BY t.node_id, t.victim_pid, t.victim_tid, (t.start_ns - ?) / ?, s.text, t.pid"
        " ORDER BY SUM(t.ns) DESC",
        (begin, view.to_ns, begin, step),
    )
    places = {(each.node, each.pid, each.tid): each for each in tracks}
    for each in tracks:
        each.takers = [[] for _ in each.start_ns]
    for node_id, victim_pid, victim_tid, at_ns, comm, pid, ns in rows:
        track = places.get((asked.tracks.node(node_id)[0], victim_pid, victim_tid))
        column = None if track is None else _column(track, at_ns - view.from_ns)
        if track is None or column is None or ns < LEAST_SHARE * track.length_ns[column]:
            continue
        if len(track.takers[column]) < NAMED:
            track.takers[column].append((clean(comm or "?", 64), pid, ns))


def _column(track: ZoomTrack, at_ns: int) -> int | None:
    """The column an instant lies in; they are few, and in order."""
    number = bisect_right(track.start_ns, at_ns) - 1
    inside = number >= 0 and at_ns < track.start_ns[number] + track.length_ns[number]
    return number if inside else None
