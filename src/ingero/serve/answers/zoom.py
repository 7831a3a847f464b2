"""A timeline for a screen: as much detail as its width can show, quickly however long the recording is.

Far out a thread is where each of its seconds went, from the roll-ups, and a process what
it called most. Close enough that few rows lie in view, calls and waits themselves are
shown; those narrower than a point are drawn as one, which carries how many there are and
names the longest. Instants on tracks are nanoseconds after the window's begin.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ingero.model.words import BUCKET_WORDS
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.sense import checked, sense_made_of
from ingero.serve.answers.timeline_rows import Asked
from ingero.serve.answers.window import TimeRange, time_range
from ingero.serve.answers.zoom_counters import counters
from ingero.serve.answers.zoom_events import calls_and_waits, in_flight, moments, rows_in_view
from ingero.serve.answers.zoom_labels import labels
from ingero.serve.answers.zoom_seconds import accounted, called
from ingero.serve.answers.zoom_tracks import Names, View, ZoomTrack
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.units import SECOND

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
    db: Path | None, wanted: Range, width: int = 1000, node: str | None = None, pid: int | None = None
) -> ZoomAnswer:
    """What to draw on `width` points."""
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        with reader.trouble_told(), sense_made_of(reader):
            return checked(_zoom(Asked(reader, when, pid), when, min(max(width, NARROWEST), WIDEST)))


def _zoom(asked: Asked, when: TimeRange, width: int) -> ZoomAnswer:
    view = View(when.from_ns, when.to_ns, max(1, -(-when.length_ns // width)))
    names, rows = Names(), rows_in_view(asked)
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
