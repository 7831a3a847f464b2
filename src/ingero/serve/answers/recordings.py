"""What a database holds: nodes, recordings, and the time they cover."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from ingero.serve.answers.places import written_ns
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.window import SILENCE_NS, ended, time_range
from ingero.store.location import last_path
from ingero.store.reader import Reader


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
