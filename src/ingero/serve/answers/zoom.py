"""A timeline for a screen: as much detail as its width can show, quickly however long the recording is.

Far out a thread is where each of its seconds went, from the roll-ups, and a process what
it called most. Close enough that few rows lie in view, calls and waits themselves are
shown; those narrower than a point are drawn as one, which carries how many there are and
names the longest. Instants on tracks are nanoseconds after the window's begin.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ingero.model.words import BUCKET_WORDS
from ingero.serve.answers.gpu_series import SERIES, columns_of
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.sense import checked, sense_made_of
from ingero.serve.answers.timeline_events import COUNTERS, TimelineQuestion
from ingero.serve.answers.whose import EVERYBODY, Whose, processes_of
from ingero.serve.answers.window import TimeRange, time_range
from ingero.serve.answers.zoom_events import (
    TextNumbers,
    View,
    ZoomTrack,
    calls_and_waits,
    in_flight,
    labels,
    moments,
    rows_in_view,
)
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.store.schema import BUCKET_COLUMNS
from ingero.units import SECOND, clean

MOST_ROWS = 30_000  # shown one by one: SQLite groups them in about a tenth of a second
ALWAYS_NS = 2 * SECOND  # so close, seconds say nothing any more
NARROWEST, WIDEST = 50, 4000


class ZoomAnswer(msgspec.Struct, frozen=True):
    """`level` is `seconds` or `calls`; tracks refer to `names` by number."""

    window: WindowAnswer
    level: str
    bin_ns: int  # what one point of the screen stands for
    rows: int  # stored events in view
    names: list[str]
    layers: list[str]  # of each name: a layer, `wait`, or empty
    buckets: dict[str, str]
    tracks: list[ZoomTrack]
    more_threads: int  # that had too little to tell


def get_zoom(
    db: Path | None,
    wanted: Range,
    width: int = 1000,
    node: str | None = None,
    pid: int | None = None,
    whose: Whose = EVERYBODY,
) -> ZoomAnswer:
    """What to draw on `width` points."""
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        with reader.trouble_told(), sense_made_of(reader):
            asked = TimelineQuestion(reader, when, pid, processes_of(reader, whose))
            return checked(_zoom(asked, when, min(max(width, NARROWEST), WIDEST)))


def _zoom(asked: TimelineQuestion, when: TimeRange, width: int) -> ZoomAnswer:
    view = View(when.from_ns, when.to_ns, max(1, -(-when.length_ns // width)))
    names, rows = TextNumbers(), rows_in_view(asked)
    close = rows <= MOST_ROWS or when.length_ns <= ALWAYS_NS
    threads, more = accounted(asked, view)
    tracks = [*counters(asked, view), *threads, *labels(asked, view, names)]
    if close:
        tracks += [*calls_and_waits(asked, view, names), *in_flight(asked, view, names)]
    else:
        tracks += called(asked, view, names)
    tracks += moments(asked, view, names)
    return ZoomAnswer(
        WindowAnswer(when.from_ns, when.to_ns), "calls" if close else "seconds", view.bin_ns, rows,
        names.texts, names.layers, dict(BUCKET_WORDS), tracks, more,
    )  # fmt: skip


# Tracks from the roll-ups: where each second of a thread went, and what a process called most.


MOST_THREADS = 60
BUCKETS = [column.removesuffix("_ns") for column in BUCKET_COLUMNS]
Row = tuple[Any, ...]


def step_of(view: View) -> int:
    """How long one column is: whole seconds, at least two points of the screen."""
    return -(-2 * view.bin_ns // SECOND) * SECOND


def accounted(asked: TimelineQuestion, view: View) -> tuple[list[ZoomTrack], int]:
    """Threads by process, those that feed a GPU first; and how many more there are."""
    step, begin = step_of(view), view.from_ns - SECOND  # a second may begin before the view does
    sums = ", ".join(f"SUM(t.{column})" for column in BUCKET_COLUMNS)
    rows = list(
        asked.rows(
            "SELECT t.node_id, t.process_id, t.pid, t.tid, MAX(t.comm_id), MAX(t.feeder), MIN(t.start_ns),"
            f" MAX(t.start_ns), {sums} FROM thread_second t"
            f" WHERE t.start_ns >= ? AND t.start_ns < ?{asked.of_process('t')}"
            " GROUP BY t.node_id, t.process_id, t.pid, t.tid, (t.start_ns - ?) / ?"
            " ORDER BY t.node_id, t.process_id, t.pid, t.tid, 7",
            (begin, view.to_ns, begin, step),
        )
    )
    known = ", ".join(str(number) for number in {row[4] for row in rows if row[4] is not None}) or "NULL"
    comms = dict(asked.reader.rows(f"SELECT id, text FROM string WHERE id IN ({known})"))
    tracks = []
    for who, group in groupby(rows, key=lambda row: row[:4]):
        members = list(group)
        tracks.append((_weight(members), _thread(asked, view, who, members, comms)))
    tracks.sort(key=lambda pair: (not pair[1].feeder, -pair[0]))
    shown = [track for _, track in tracks[:MOST_THREADS]]
    takers(asked, view, step, shown)
    return shown, max(0, len(tracks) - MOST_THREADS)


def _weight(rows: list[Row]) -> int:
    """How much a thread has to tell: all but sleeping."""
    asleep = 8 + BUCKETS.index("sleep")
    return sum(sum(row[8:]) - row[asleep] for row in rows)


def _thread(
    asked: TimelineQuestion, view: View, who: Row, rows: list[Row], comms: dict[int, str]
) -> ZoomTrack:
    node_id, process_id, pid, tid = who
    ns = np.array([row[8:] for row in rows], np.float64).T
    used = np.flatnonzero(ns.any(axis=1))
    shares = np.round(ns[used] / np.maximum(ns.sum(axis=0), 1), 4)
    return ZoomTrack(
        kind="accounted",
        node=asked.tracks.node(node_id)[0],
        process=asked.tracks.process(node_id, process_id, pid, comms.get(rows[0][4])).name,
        pid=pid,
        tid=tid,
        title=clean(comms.get(rows[0][4]) or "thread", 64),
        feeder=bool(max(row[5] or 0 for row in rows)),
        buckets=[BUCKETS[at] for at in used],
        start_ns=[row[6] - view.from_ns for row in rows],
        length_ns=[max(row[7] + SECOND - row[6], 1) for row in rows],
        shares=shares.tolist(),
    )


def called(asked: TimelineQuestion, view: View, names: TextNumbers) -> Iterator[ZoomTrack]:
    """Of each process and column the operation with most time, and how many calls there were in all."""
    step = step_of(view)
    rows = asked.rows(
        "SELECT t.node_id, t.process_id, t.pid, (t.start_ns - ?) / ? AS at, t.op_id, SUM(t.count),"
        " SUM(t.sum_ns), MAX(t.max_ns) FROM operation_second t"
        f" WHERE t.start_ns >= ? AND t.start_ns < ?{asked.of_process('t')}"
        " GROUP BY t.node_id, t.process_id, t.pid, at, t.op_id"
        " ORDER BY t.node_id, t.process_id, t.pid, at, SUM(t.sum_ns) DESC",
        (view.from_ns, step, view.from_ns, view.to_ns),
    )
    for (node_id, process_id, pid), group in groupby(rows, key=lambda row: row[:3]):
        track = ZoomTrack(
            kind="called",
            node=asked.tracks.node(node_id)[0],
            process=asked.tracks.process(node_id, process_id, pid).name,
            pid=pid,
            title="calls",
        )
        for at, column in groupby(group, key=lambda row: row[3]):
            members = list(column)
            layer, name = asked.ops[members[0][4]]
            track.start_ns.append(at * step)
            track.length_ns.append(step)
            track.name.append(names.number(name, layer))
            track.count.append(sum(row[5] for row in members))
            track.longest_ns.append(max(row[7] or 0 for row in members))
        yield track


# Who had the core in each second that a thread waited for one.


NAMED = 3  # of each column
LEAST_SHARE = 0.01  # of a column: less is nobody's fault


def takers(asked: TimelineQuestion, view: View, step: int, tracks: list[ZoomTrack]) -> None:
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


# Counters on a zoomed timeline: means over each point of the screen.


BESIDE_NS = 2 * SECOND  # samples are a second apart
SHOWN = ("cpu_share", "memory_share", "psi_cpu_some", "psi_memory_some", "psi_io_some")


def _around(view: View) -> tuple[int, int, int, int]:
    """From, to, where points are counted from, how long one is.

    With the samples beside the view, so that a line leads into it and out of it.
    """
    begin = view.from_ns - BESIDE_NS
    return begin, view.to_ns + BESIDE_NS, begin, view.bin_ns


def counters(asked: TimelineQuestion, view: View) -> Iterator[ZoomTrack]:
    """Of the GPUs and of the machine; those there are values for."""
    yield from _gpus(asked, view)
    yield from _machine(asked, view)


def _gpus(asked: TimelineQuestion, view: View) -> Iterator[ZoomTrack]:
    chosen = [each for each in SERIES if each[0] in columns_of(asked.reader, "gpu_samples")]
    if not chosen:
        return
    means = ", ".join(f"AVG({column})" for column, _, _, _ in chosen)
    rows = list(
        asked.rows(
            f"SELECT node, gpu_id, MIN(timestamp_ns), {means} FROM gpu_samples"
            " WHERE timestamp_ns >= ? AND timestamp_ns < ?"
            " GROUP BY node, gpu_id, (timestamp_ns - ?) / ? ORDER BY 1, 2, 3",
            _around(view),
        )
    )
    for (node, gpu_id), group in groupby(rows, key=lambda row: row[:2]):
        mine = list(group)
        for at, (_, title, unit, scale) in enumerate(chosen):
            if any(row[3 + at] is not None for row in mine):
                yield ZoomTrack(
                    kind="counter",
                    node=clean(node, 128),
                    process="",
                    title=f"GPU {gpu_id}: {title}",
                    unit=unit,
                    start_ns=[row[2] - view.from_ns for row in mine],
                    values=[None if row[3 + at] is None else row[3 + at] * scale for row in mine],
                )


def _machine(asked: TimelineQuestion, view: View) -> Iterator[ZoomTrack]:
    chosen = [counter for counter in COUNTERS if counter[0] in SHOWN]
    means = ", ".join(f"AVG({column})" for column, _, _ in chosen)
    rows = list(
        asked.rows(
            f"SELECT node_id, MIN(at_ns), {means} FROM system_sample WHERE at_ns >= ? AND at_ns < ?"
            " GROUP BY node_id, (at_ns - ?) / ? ORDER BY node_id, 2",
            _around(view),
        )
    )
    for node_id in sorted({row[0] for row in rows}):
        mine = [row for row in rows if row[0] == node_id]
        for at, (_, title, unit) in enumerate(chosen):
            if any(row[2 + at] is not None for row in mine):
                yield ZoomTrack(
                    kind="counter",
                    node=asked.tracks.node(node_id)[0],
                    process="",
                    title=title,
                    unit=unit,
                    start_ns=[row[1] - view.from_ns for row in mine],
                    values=[row[2 + at] for row in mine],
                )
