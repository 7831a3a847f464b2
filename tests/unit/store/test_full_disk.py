"""A disk that is full when the recording ends: what is missing is said, by the trace and by its file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ingero.model.live import DatabaseStatus, LiveView
from ingero.model.window import Window
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range
from ingero.serve.cli.closing import with_memory
from ingero.serve.cli.diagnosis import Verbosity, footer
from ingero.store import retention
from ingero.store import writer as writing
from ingero.store.recording import Recording
from ingero.store.retention import Reserve
from ingero.store.writer import Writer
from tests.builders import EPOCH_NS, OPERATIONS, SECOND, FakeTime, call, operation, process, thread, window


def second(number: int) -> Window:
    return window(
        number * SECOND,
        calls=[call("cudaFree", at_ns=number * SECOND)] * 10,
        operations=operation("cudaFree", [5000] * 10),
        threads=thread(gpu_wait=SECOND),
        processes=[process()] if number == 0 else [],
        losses={"ring_call": 3} if number == 4 else {},
    )


def no_space(*_: object) -> None:
    """What SQLite says of a full disk."""
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA max_page_count = 1")
    connection.execute("CREATE TABLE t (a)")


def record(path: Path, monkeypatch: pytest.MonkeyPatch, brief: bool = True) -> tuple[Writer, list[object]]:
    """Six seconds, of which the disk takes three; then the first try to end it fails."""
    times = FakeTime()
    writer = Writer(path, "a", times.clock(), OPERATIONS)
    stored = Recording.store
    tried: list[object] = []
    for number in range(6):
        if number == 3:
            monkeypatch.setattr(Recording, "store", no_space)
        times.advance(SECOND)
        writer.write(second(number))
    monkeypatch.setattr(Recording, "end", lambda *_: tried.append("end") or no_space())
    if not brief:
        monkeypatch.setattr(Recording, "end_briefly", no_space)
    assert "no space" in writer.close()
    monkeypatch.setattr(Recording, "store", stored)
    return writer, tried


def test_what_was_lost_is_stored_in_the_space_kept_for_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, tried = record(path, monkeypatch)
    assert tried == ["end"]
    report = get_report(path, Range())
    lost = {loss.reason: loss.count for loss in report.losses}
    assert lost == {**writer.dropped, "ring_call": 3}  # of a window that was given up, after the last stored
    assert lost["store_backlog"] > 0
    assert report.window.to_ns == EPOCH_NS + 3 * SECOND + 1
    assert report.not_watched[0].why == "it could not be stored"
    assert report.not_watched[0].what.startswith("3 s after ")
    assert not report.unfinished


def test_a_recording_that_could_not_even_say_so_is_known_to_have_no_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(path, monkeypatch, brief=False)
    report = get_report(path, Range())
    assert report.unfinished
    assert "was not closed" in report.not_watched[0].why
    (lost, *_) = footer(report, Verbosity())
    assert "what came later is unknown" in str(lost)


def test_the_closing_report_of_a_trace_has_every_loss_of_its_status_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, _ = record(path, monkeypatch, brief=False)
    stored = get_report(path, Range())
    view = LiveView(
        EPOCH_NS + 6 * SECOND,
        6 * SECOND,
        losses={**writer.dropped, "ring_call": 3},
        database=DatabaseStatus(str(path), 1, writer.status),
    )
    told = with_memory(stored, view)
    assert {loss.reason: loss.count for loss in told.losses} == view.losses
    assert told.not_watched[0].what == "3 s of 6 s"
    assert "no space left" in told.not_watched[0].why
    assert with_memory(told, view).losses == told.losses
    assert with_memory(stored, None) == stored


def test_the_space_is_nameless_and_goes_with_the_recording(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Reserve(path.parent)
    assert list(path.parent.iterdir()) == []
    assert held.release()
    assert not held.release()
    monkeypatch.setattr(retention, "LEAST_FREE", 1 << 62)
    assert not Reserve(path.parent).release()  # little room: none is taken from it
    assert not Reserve(Path("/proc/nowhere")).release()


def test_a_writer_holds_it_only_while_it_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Reserve] = []
    monkeypatch.setattr(writing, "Reserve", lambda folder: made.append(Reserve(folder)) or made[-1])
    Writer(path, "a", FakeTime().clock(), OPERATIONS).close()
    assert [each.release() for each in made] == [False]
