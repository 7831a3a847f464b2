"""Tracks from stored events: calls and waits of each thread, what still runs, and moments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from ingero.serve.answers.timeline_events import CALL_LAYERS, END, TimelineQuestion, tidy
from ingero.store.schema import SEQ_MASK
from ingero.units import SECOND, clean

# What a zoomed timeline is made of: tracks with columns, because a screen has thousands of slices.


class View(NamedTuple):
    """What is looked at; `bin_ns` is one point of the screen."""

    from_ns: int
    to_ns: int
    bin_ns: int


class ZoomTrack(msgspec.Struct, kw_only=True):
    """One row. `kind` says which columns it has.

    `calls`, `waits`, `called`, `labels`, `moments`: start_ns, length_ns, name, count, longest_ns and, of
    a single event or the longest of several, event; `calls` also depth. `accounted`:
    start_ns and length_ns of each column, its `shares`, one list for each bucket, and its `takers`:
    who had the core meanwhile (name, PID, nanoseconds), most first.
    `counter`: start_ns and values.
    """

    kind: str
    node: str
    process: str  # what it is shown under; empty for the machine's own
    pid: int | None = None
    tid: int | None = None
    title: str = ""
    unit: str = ""
    feeder: bool = False
    buckets: list[str] = []
    start_ns: list[int] = []
    length_ns: list[int] = []
    name: list[int] = []
    count: list[int] = []
    longest_ns: list[int] = []
    event: list[int] = []  # number on its node
    depth: list[int] = []
    shares: list[list[float]] = []
    values: list[float | None] = []
    takers: list[list[tuple[str, int | None, int]]] = []


@dataclass(slots=True)
class TextNumbers:
    """Texts that come again and again, kept once."""

    texts: list[str] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)
    _known: dict[tuple[str, str], int] = field(default_factory=dict)

    def number(self, text: str, layer: str) -> int:
        found = self._known.get((text, layer))
        if found is None:
            found = self._known[text, layer] = len(self.texts)
            self.texts.append(text)
            self.layers.append(layer)
        return found


LATER_NS = 2 * SECOND  # a call is stored when it has returned; longer ones are among those in flight
MOST_MOMENTS = 2_000
Row = tuple[Any, ...]


def rows_in_view(asked: TimelineQuestion) -> int:
    """How many events are stored for the time in view; from the list of windows, so at once."""
    return sum(last - first + 1 for first, last in asked.reader.id_ranges(*asked.between))


def calls_and_waits(asked: TimelineQuestion, view: View, names: TextNumbers) -> Iterator[ZoomTrack]:
    """A row of SQL for each slice to draw: narrow ones of one thread and depth are one for each point."""
    waits = ", ".join(str(number) for number, (layer, _) in asked.ops.items() if layer == "host") or "NULL"
    # A column beside the only MAX() is that of the row with the largest: so the longest names them all.
    rows = [
        row
        for ids in _ids(asked)
        for row in asked.rows(
            f"SELECT e.node_id, e.process_id, e.pid, e.tid, e.op_id IN ({waits}) AS waiting,"
            " COALESCE(e.depth, 0) AS deep, e.ts_ns, MAX(e.duration_ns), e.op_id, COUNT(*), e.id, e.comm_id,"
            " CASE WHEN e.duration_ns < ? THEN (e.ts_ns - ?) / ? ELSE -e.id END AS point"
            f" FROM event e WHERE {_overlapping(asked, ids)}"
            " GROUP BY e.node_id, e.process_id, e.pid, e.tid, waiting, deep, point",
            (view.bin_ns, view.from_ns, view.bin_ns),
        )
    ]
    rows.sort(key=lambda row: (row[0], row[1] or 0, row[2] or 0, row[3] or 0, row[4], row[6]))
    for who, group in groupby(rows, key=lambda row: row[:5]):
        yield _thread(asked, view, names, who, list(group))


def _ids(asked: TimelineQuestion) -> list[tuple[int, int]]:
    return asked.reader.id_ranges(asked.when.from_ns, asked.when.to_ns + LATER_NS)


def _overlapping(asked: TimelineQuestion, ids: tuple[int, int]) -> str:
    layers = (*CALL_LAYERS, "host")
    numbers = ", ".join(str(number) for number, (layer, _) in asked.ops.items() if layer in layers)
    return (
        f"e.id BETWEEN {ids[0]} AND {ids[1]} AND e.op_id IN ({numbers}) AND e.duration_ns IS NOT NULL"
        f" AND e.ts_ns < {asked.when.to_ns} AND e.ts_ns + e.duration_ns >= {asked.when.from_ns}"
        f"{asked.of_process('e')}"
    )


def _thread(asked: TimelineQuestion, view: View, names: TextNumbers, who: Row, rows: list[Row]) -> ZoomTrack:
    node_id, process_id, pid, tid, waiting = who
    comm = asked.reader.rows("SELECT text FROM string WHERE id = ?", (rows[0][11] or 0,))
    track = ZoomTrack(
        kind="waits" if waiting else "calls",
        node=asked.tracks.node(node_id)[0],
        process=asked.tracks.process(node_id, process_id, pid, comm[0][0] if comm else None).name,
        pid=pid,
        tid=tid,
        title=clean(comm[0][0], 64) if comm else "thread",
    )
    for _, _, _, _, _, depth, start, longest, op, count, number, _, point in rows:
        layer, name = asked.ops[op]
        track.start_ns.append(start - view.from_ns if count == 1 else point * view.bin_ns)
        track.length_ns.append(longest if count == 1 else view.bin_ns)
        track.name.append(names.number(name, "wait" if waiting else layer))
        track.count.append(count)
        track.longest_ns.append(longest)
        track.event.append(number & SEQ_MASK)
        track.depth.append(depth)
    return track


def in_flight(asked: TimelineQuestion, view: View, names: TextNumbers) -> Iterator[ZoomTrack]:
    """Calls that had not returned when last seen: the only trace a job that hangs leaves."""
    rows = asked.rows(
        "SELECT f.node_id, f.process_id, f.pid, f.tid, f.since_ns, f.last_seen_ns, f.op_id, c.text"
        " FROM in_flight f LEFT JOIN string c ON c.id = f.comm_id"
        f" WHERE f.op_id > 0 AND f.since_ns < ? AND f.last_seen_ns >= ?{asked.of_process('f')}"
        " ORDER BY f.node_id, f.process_id, f.pid, f.tid, f.since_ns",
        (view.to_ns, view.from_ns),
    )
    for (node_id, process_id, pid, tid), group in groupby(rows, key=lambda row: row[:4]):
        members = list(group)
        known = [row for row in members if row[6] in asked.ops]
        yield ZoomTrack(
            kind="in_flight",
            node=asked.tracks.node(node_id)[0],
            process=asked.tracks.process(node_id, process_id, pid, members[0][7]).name,
            pid=pid,
            tid=tid,
            title=clean(members[0][7] or "thread", 64),
            start_ns=[row[4] - view.from_ns for row in known],
            length_ns=[row[5] - row[4] for row in known],
            name=[names.number(asked.ops[row[6]][1], asked.ops[row[6]][0]) for row in known],
            count=[1] * len(known),
            longest_ns=[row[5] - row[4] for row in known],
        )


def moments(asked: TimelineQuestion, view: View, names: TextNumbers) -> Iterator[ZoomTrack]:
    """What has no length: processes that come and go, faults, retransmits. Rare, so all of them are shown."""
    if rows_in_view(asked) > 20 * MOST_MOMENTS:
        return
    rows = [
        row
        for first, last in asked.reader.id_ranges(*asked.between)
        for row in asked.rows(
            "SELECT e.node_id, e.ts_ns, e.op_id, e.id, c.text, e.pid FROM event e"
            " LEFT JOIN string c ON c.id = e.comm_id WHERE e.id BETWEEN ? AND ? AND e.duration_ns IS NULL"
            f" AND e.ts_ns >= ? AND e.ts_ns < ?{asked.of_process('e')} LIMIT ?",
            (first, last, *asked.between, MOST_MOMENTS),
        )
    ]
    rows.sort(key=lambda row: row[:2])
    for node_id, group in groupby(rows, key=lambda row: row[0]):
        track = ZoomTrack(kind="moments", node=asked.tracks.node(node_id)[0], process="", title="moments")
        for _, at_ns, op, number, comm, pid in group:
            layer, name = asked.ops[op]
            who = f" {clean(comm or '?', 64)} ({pid})" if pid is not None else ""
            track.start_ns.append(at_ns - view.from_ns)
            track.length_ns.append(0)
            track.name.append(names.number(f"{name}{who}", layer))
            track.count.append(1)
            track.longest_ns.append(0)
            track.event.append(number & SEQ_MASK)
        yield track


# What jobs said they were doing, on a zoomed timeline: a row of each process and key.


def labels(asked: TimelineQuestion, view: View, names: TextNumbers) -> Iterator[ZoomTrack]:
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
