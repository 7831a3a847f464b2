"""Tracks from the roll-ups: where each second of a thread went, and what a process called most."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np

from ingero.serve.answers.timeline_rows import Asked
from ingero.serve.answers.zoom_takers import takers
from ingero.serve.answers.zoom_tracks import Names, View, ZoomTrack
from ingero.store.schema import BUCKET_COLUMNS
from ingero.units import SECOND, clean

MOST_THREADS = 60
BUCKETS = [column.removesuffix("_ns") for column in BUCKET_COLUMNS]
Row = tuple[Any, ...]


def step_of(view: View) -> int:
    """How long one column is: whole seconds, at least two points of the screen."""
    return -(-2 * view.bin_ns // SECOND) * SECOND


def accounted(asked: Asked, view: View) -> tuple[list[ZoomTrack], int]:
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


def _thread(asked: Asked, view: View, who: Row, rows: list[Row], comms: dict[int, str]) -> ZoomTrack:
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


def called(asked: Asked, view: View, names: Names) -> Iterator[ZoomTrack]:
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
