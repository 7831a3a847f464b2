"""Counters on a zoomed timeline: means over each point of the screen."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ingero.serve.answers.gpu_series import SERIES, columns_of
from ingero.serve.answers.timeline_machine import COUNTERS
from ingero.serve.answers.timeline_rows import Asked
from ingero.serve.answers.zoom_tracks import View, ZoomTrack
from ingero.units import SECOND, clean

BESIDE_NS = 2 * SECOND  # samples are a second apart
SHOWN = ("cpu_share", "memory_share", "psi_cpu_some", "psi_memory_some", "psi_io_some")


def _around(view: View) -> tuple[int, int, int, int]:
    """From, to, where points are counted from, how long one is.

    With the samples beside the view, so that a line leads into it and out of it.
    """
    begin = view.from_ns - BESIDE_NS
    return begin, view.to_ns + BESIDE_NS, begin, view.bin_ns


def counters(asked: Asked, view: View) -> Iterator[ZoomTrack]:
    """Of the GPUs and of the machine; those there are values for."""
    yield from _gpus(asked, view)
    yield from _machine(asked, view)


def _gpus(asked: Asked, view: View) -> Iterator[ZoomTrack]:
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


def _machine(asked: Asked, view: View) -> Iterator[ZoomTrack]:
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
