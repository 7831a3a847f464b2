"""What a database holds: nodes, recordings, and the time they cover."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ingero.errors import UsageError
from ingero.serve.answers.places import written_ns
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.window import SILENCE_NS, ended, time_range
from ingero.store.excerpt import ExcerptPart, TooLargeError, write_excerpt
from ingero.store.location import last_path
from ingero.store.migrations import table_names
from ingero.store.reader import Reader
from ingero.units import clean


class Recorded(msgspec.Struct, frozen=True):
    """One run of the agent on one node."""

    node: str
    started_ns: int
    last_ns: int
    ended_ns: int | None  # None: still going on, or killed
    live: bool  # going on, as far as its last record tells
    command: str | None
    cores: int | None
    version: str | None


class RecordingsAnswer(msgspec.Struct, frozen=True):
    """`window` is what a question without a range is about; `asked` what this one was."""

    nodes: list[str]
    window: WindowAnswer
    asked: WindowAnswer
    counted_from: str  # now, last-record, recording, given
    live: bool
    recordings: list[Recorded]  # oldest first


MOST_NODES = 1000


def get_nodes(db: Path | None) -> tuple[str, ...]:
    """By name."""
    with Reader(db or last_path()) as reader:
        return tuple(reader.nodes()[:MOST_NODES])


def get_recordings(
    db: Path | None, wanted: Range, node: str | None = None, now_ns: int | None = None
) -> RecordingsAnswer:
    """All nodes, whichever is asked about; recordings and times of that one."""
    now_ns = time.time_ns() if now_ns is None else now_ns
    path = db or last_path()
    with Reader(path) as reader:
        nodes = reader.nodes()
    being_written = now_ns - written_ns(path) < SILENCE_NS  # before its first second it has no record
    with Reader(path, node) as reader:
        whole = time_range(reader, now_ns=now_ns)
        asked = time_range(reader, wanted.since, wanted.start, wanted.end, now_ns)
        found = [
            Recorded(
                node=each.node,
                started_ns=each.started_ns,
                last_ns=each.last_ns,
                ended_ns=each.ended_ns,
                live=each.ended_ns is None and (being_written or not ended(each, now_ns)),
                command=each.command,
                cores=each.cores,
                version=each.version,
            )
            for each in reader.recordings()
        ]
    return RecordingsAnswer(
        nodes,
        WindowAnswer(whole.from_ns, whole.to_ns),
        WindowAnswer(asked.from_ns, asked.to_ns),
        asked.anchor,
        any(each.live for each in found),
        found,
    )


# A part of the recording as a file of its own, for whoever puts several nodes together.


__all__ = ["MOST_BYTES", "TooLargeError", "recording_part"]
MOST_BYTES = 1 << 30
DISK_SHARE = 4  # of what is free


@contextmanager
def recording_part(
    db: Path | None, wanted: Range, tables: str | None, most_bytes: int, last: bool = False
) -> Iterator[Path]:
    """A new database; without a range everything, or the last recording. Gone when this ends."""
    path = db or last_path()
    chosen = _tables(tables)
    part = ExcerptPart(tables=chosen)
    if last or wanted != Range():
        with Reader(path) as reader:
            when = time_range(reader, wanted.since, wanted.start, wanted.end)
        part = ExcerptPart(when.from_ns, when.to_ns, chosen)
    with tempfile.TemporaryDirectory(prefix="ingero-part-") as folder:
        most = min(most_bytes, MOST_BYTES, shutil.disk_usage(folder).free // DISK_SHARE)
        made = Path(folder) / "part.db"
        write_excerpt(path, made, ExcerptPart(part.from_ns, part.to_ns, chosen, most))
        yield made


def _tables(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    named = frozenset(filter(None, text.split(",")))
    unknown = named - table_names()
    if unknown:
        raise UsageError(
            f"there is no table {clean(sorted(unknown)[0], 60)!r}", hint="The node may run another version."
        )
    return named
