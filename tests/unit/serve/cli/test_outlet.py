"""A reader that does not read holds nobody up."""

from __future__ import annotations

import fcntl
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from ingero.agent.shown import Telling
from ingero.model.live import UNREAD, LiveView
from ingero.serve.answers.records import RecordStream
from ingero.serve.cli import surfaces as module
from ingero.serve.cli.surfaces import JsonSurface, Outlet, PlainSurface, outlet, settled
from tests.builders import OPERATIONS, call, fixed_clock, wait, window


class Pipe:
    """A pipe whose reader can look away."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        self.file: TextIO = os.fdopen(writing, "w")

    def read_to_end(self) -> str:
        """What has been written when the other end closes."""
        reading, self.reading = self.reading, -1
        with os.fdopen(reading) as file:
            return file.read()

    def look_away(self) -> None:
        if self.reading >= 0:
            os.close(self.reading)
            self.reading = -1

    def close(self) -> None:
        self.look_away()  # now whoever is blocked is told
        for thread in threading.enumerate():
            if thread.name == "output":
                thread.join()
        self.file.close()


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    monkeypatch.setattr(module, "MOST_BYTES", 20_000)
    made = Pipe()
    yield made
    made.close()


def test_writing_into_a_pipe_nobody_reads_returns_and_is_behind(pipe: Pipe) -> None:
    out = Outlet(pipe.file)
    while not out.behind:
        out.write("x" * 999 + "\n")
    assert out.settle() >= 15  # a few of them fitted into the pipe


def test_everything_arrives_in_order_once_it_is_read(pipe: Pipe) -> None:
    out = Outlet(pipe.file)
    lines = [f"{number}: é\n" for number in range(3000)]
    for line in lines:
        out.write(line)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_to_end()))
    reader.start()
    while out.settle():
        pass
    pipe.file.close()
    reader.join()
    assert got == ["".join(lines)]


def test_a_reader_that_went_away_is_told_by_the_next_writing(pipe: Pipe) -> None:
    out = Outlet(pipe.file)
    pipe.look_away()
    out.write("x")
    out.settle()
    with pytest.raises(BrokenPipeError):
        out.write("y")


def test_a_pipe_that_others_made_nonblocking_loses_nothing(pipe: Pipe) -> None:
    os.set_blocking(pipe.file.fileno(), False)
    out = Outlet(pipe.file)
    out.write("x" * 10_000)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_to_end()))
    reader.start()
    while out._waiting:
        out.settle()
    pipe.file.close()
    reader.join()
    assert got == ["x" * 10_000]


def test_a_file_in_memory_is_written_at_once() -> None:
    file = io.StringIO()
    assert outlet(file) is file
    assert settled(file) == 0


def told(surface: Any, windows: int) -> Telling:
    telling = Telling(surface, RecordStream(OPERATIONS, fixed_clock(), "n"))
    for number in range(windows):
        telling.tell(window(number, calls=[call() for _ in range(40)], waits=[wait()]))
    return telling


def test_records_that_nobody_reads_are_counted_and_said_and_the_trace_goes_on(
    pipe: Pipe, tmp_path: Path
) -> None:
    said = io.StringIO()
    surface = JsonSurface(pipe.file, said)
    telling = told(surface, 20)
    lost = telling.losses()[UNREAD]
    assert 0 < lost < 20 * 41
    assert lost % 41 == 0  # whole windows
    surface.end(LiveView(0, 0, losses={UNREAD: lost}), 0)
    assert "nobody reads standard output" in said.getvalue()
    unread = settled(surface._out)
    assert f"{lost + unread:,} records were skipped" in said.getvalue()


def test_records_that_are_read_are_all_there() -> None:
    out = io.StringIO()
    assert told(JsonSurface(out, io.StringIO()), 20).losses() == {}
    assert len(out.getvalue().splitlines()) == 20 * 41


def test_tables_for_a_terminal_that_is_stopped_hold_nothing_up(pipe: Pipe) -> None:
    surface = PlainSurface(pipe.file, every_ns=1)
    for second in range(200):
        surface.update(LiveView(0, second))
    surface.end(LiveView(0, 200), 0)
