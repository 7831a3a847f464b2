"""Fetched recordings are set to our clock, by the offset now and by the steps they note."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from ingero.fleet.asking import Reply
from ingero.fleet.clocks import Offset
from ingero.fleet.failures import Problem
from ingero.fleet.nodes import Node
from ingero.serve.answers.nodes_recordings import NodeClock, by_our_clock
from ingero.store.writer import Writer
from tests.builders import EPOCH_NS, OPERATIONS, SECOND, FakeTime, call, window

MS = 1_000_000


def fetched(path: Path, at_s: int = 0, delta_ns: int = 0) -> Reply:
    """A recording of ten seconds with a call in each; at one of them its clock is set."""
    time = FakeTime()
    clock = time.clock()
    with Writer(path, "a", clock, OPERATIONS) as writer:
        for at in range(10):
            if delta_ns and at == at_s:
                time.wall_ns += delta_ns
                assert clock.observe() is not None
            writer.write(window(at * SECOND, calls=[call(at_ns=at * SECOND + 5)]))
            time.advance(SECOND)
    return Reply(Node("a", 1), clock=Offset(80 * MS, MS, EPOCH_NS, 4), file=path)


def times(path: Path | None) -> list[int]:
    assert path is not None
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT timestamp FROM events WHERE source = 1 ORDER BY 1").fetchall()
    return [at_ns for (at_ns,) in rows]


def test_every_time_is_moved_by_the_offset(tmp_path: Path) -> None:
    set_to: dict[str, NodeClock] = {}
    moved = by_our_clock(fetched(tmp_path / "a.db"), set_to)
    assert times(moved) == [EPOCH_NS + at * SECOND + 5 - 80 * MS for at in range(10)]
    assert set_to == {"a": NodeClock(-80 * MS, MS)}


def test_what_was_recorded_before_the_clock_was_set_is_moved_by_the_step_too(tmp_path: Path) -> None:
    """Three seconds behind until second five: recorded times jump there, and moved ones do not."""
    reply = fetched(tmp_path / "a.db", 5, 3 * SECOND)
    assert times(reply.file)[5] - times(reply.file)[4] == 4 * SECOND
    moved = by_our_clock(reply, {})
    assert times(moved) == [EPOCH_NS + (at + 3) * SECOND + 5 - 80 * MS for at in range(10)]


def test_an_earlier_recording_is_moved_by_the_offset_alone(tmp_path: Path) -> None:
    """It may be of before a reboot: steps of the last one say nothing about it."""
    with Writer(tmp_path / "a.db", "a", early().clock(), OPERATIONS) as writer:
        writer.write(window(0, calls=[call(at_ns=5)]))
    moved = by_our_clock(fetched(tmp_path / "a.db", 5, 3 * SECOND), {})
    assert times(moved)[0] == EPOCH_NS - 3600 * SECOND + 5 - 80 * MS
    assert times(moved)[1] == EPOCH_NS + 3 * SECOND + 5 - 80 * MS


def early() -> FakeTime:
    time = FakeTime()
    time.wall_ns -= 3600 * SECOND
    return time


def test_a_step_back_that_was_not_followed_moves_everything(tmp_path: Path) -> None:
    moved = by_our_clock(fetched(tmp_path / "a.db", 5, -2 * SECOND), {})
    assert times(moved) == [EPOCH_NS + at * SECOND + 5 - 80 * MS - 2 * SECOND for at in range(10)]


def test_an_offset_within_its_error_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    reply = fetched(tmp_path / "a.db")
    reply.clock = Offset(MS, 2 * MS, EPOCH_NS, 4)
    assert by_our_clock(reply, {}) == reply.file


def test_what_is_no_recording_becomes_a_node_that_did_not_answer(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    reply = Reply(Node("a", 1), clock=None, file=tmp_path / "a.db")
    assert by_our_clock(reply, {}) is None
    assert reply.failure is not None
    assert reply.failure.problem is Problem.GARBAGE
