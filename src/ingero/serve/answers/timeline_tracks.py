"""A recording as a timeline: calls, states, findings and counters on their tracks.

What overlaps the time asked for is in it. One track is read after the other, so
memory stays small however long the recording is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ingero.errors import StoreError
from ingero.serve.answers.query import Range
from ingero.serve.answers.timeline_calls import calls
from ingero.serve.answers.timeline_collectives import collectives
from ingero.serve.answers.timeline_findings import findings
from ingero.serve.answers.timeline_labels import labels
from ingero.serve.answers.timeline_machine import card_counters, counters, moments, requests
from ingero.serve.answers.timeline_rows import Asked
from ingero.serve.answers.timeline_states import accounted, states, wakes
from ingero.serve.answers.tracks import Item
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store import opening
from ingero.store.location import last_path
from ingero.store.reader import Reader

PARTS: tuple[Callable[[Asked], Iterator[Item]], ...] = (
    findings, labels, counters, card_counters, calls, states, wakes, accounted, collectives, moments,
    requests,
)  # fmt: skip


def timeline(asked: Asked) -> Iterator[Item]:
    """Every item, each track before what is drawn on it."""
    try:
        for part in PARTS:
            for item in part(asked):
                if asked.tracks.new:
                    yield from asked.tracks.taken()
                yield item
    except sqlite3.Error as error:
        raise opening.opening_error(asked.reader.path, error) from error
    except (TypeError, ValueError, OverflowError, LookupError) as error:  # SQLite takes text for a number
        raise StoreError(
            f"{asked.reader.path} holds values that cannot be right: {error}", hint="The file is damaged."
        ) from error


@contextmanager
def open_timeline(
    db: Path | None, wanted: Range, pid: int | None = None, node: str | None = None
) -> Iterator[tuple[TimeRange, Iterator[Item]]]:
    """The timeline of a recording; of one process or one node where asked for."""
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        reader.connection.execute("PRAGMA temp_store = FILE")  # sorts of any size
        yield when, timeline(Asked(reader, when, pid))
