from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingero.errors import StoreError, UsageError
from ingero.serve.answers.window import parse_instant, time_range
from ingero.store.reader import Reader
from ingero.store.recording import connect
from ingero.store.writer import Writer
from tests.builders import EPOCH_NS, OPERATIONS, SECOND, FakeTime, call, window

LAST_NS = EPOCH_NS + 60 * SECOND


OPENED: list[Any] = []


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    """A connection left open is a warning from Python 3.13 on."""
    yield
    while OPENED:
        OPENED.pop().close()


def _recorded(path: Path, close: bool) -> Reader:
    times = FakeTime()
    writer = Writer(path, "n", times.clock(), OPERATIONS)
    writer.write(window(59 * SECOND, calls=call()))
    times.advance(60 * SECOND)
    if close:
        writer.close()
    else:
        OPENED.append(writer)
    OPENED.append(Reader(path))
    return OPENED[-1]


def test_since_counts_back_from_now_while_the_recording_runs(tmp_path: Path) -> None:
    found = time_range(_recorded(tmp_path / "x.db", close=False), since="10s", now_ns=LAST_NS + SECOND)
    assert (found.from_ns, found.to_ns, found.anchor) == (LAST_NS - 9 * SECOND, LAST_NS + SECOND, "now")


def test_since_counts_back_from_the_last_record_once_it_has_ended(tmp_path: Path) -> None:
    found = time_range(_recorded(tmp_path / "x.db", close=True), since="10s", now_ns=LAST_NS + 3600 * SECOND)
    assert (found.to_ns, found.length_ns, found.anchor) == (LAST_NS + 1, 10 * SECOND, "last-record")


def test_a_killed_recording_has_ended_too(tmp_path: Path) -> None:
    found = time_range(_recorded(tmp_path / "x.db", close=False), since="10s", now_ns=LAST_NS + 3600 * SECOND)
    assert found.anchor == "last-record"


def test_without_a_range_it_is_the_whole_last_recording(tmp_path: Path) -> None:
    found = time_range(_recorded(tmp_path / "x.db", close=True), now_ns=LAST_NS + 3600 * SECOND)
    assert (found.from_ns, found.to_ns, found.anchor) == (LAST_NS - SECOND, LAST_NS + 1, "recording")


def test_a_given_range_is_taken_as_it_is(tmp_path: Path) -> None:
    found = time_range(
        _recorded(tmp_path / "x.db", close=True), start="1700000005", end="2023-11-14T22:13:30+00:00"
    )
    assert (found.from_ns, found.to_ns) == (EPOCH_NS + 5 * SECOND, EPOCH_NS + 10 * SECOND)


@pytest.mark.parametrize(
    "options", [{"since": "5m", "start": "1"}, {"start": "20", "end": "10"}, {"since": "soon"}]
)
def test_ranges_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        time_range(_recorded(tmp_path / "x.db", close=True), **options)


@pytest.mark.parametrize("text", ["", "yesterday", "2023-13-45", "1e400", "9" * 400])
def test_times_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_instant(text)


def test_instants_may_be_seconds_or_nanoseconds() -> None:
    assert parse_instant("1700000000.5") == EPOCH_NS + SECOND // 2
    assert parse_instant("1700000000000000001") == EPOCH_NS + 1


def test_a_database_without_recording_says_so(tmp_path: Path) -> None:
    connect(tmp_path / "x.db").close()
    with pytest.raises(StoreError, match="no recording"), Reader(tmp_path / "x.db") as reader:
        time_range(reader, since="5m")


@pytest.mark.parametrize("text", ["9999-12-31", "2300-01-01T00:00:00", "9223372036854770000"])
def test_a_time_beyond_what_can_be_stored_is_later_than_any_recording(text: str) -> None:
    assert EPOCH_NS < parse_instant(text) < 2**63 - 10**17


def test_a_time_before_the_epoch_is_the_epoch() -> None:
    assert parse_instant("1900-01-01T00:00:00+00:00") == 0
