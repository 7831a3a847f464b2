"""The timeline for a screen: nothing is lost by drawing it narrow, and the level fits what is in view."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ingero.model.window import Annotation, SystemSample
from ingero.serve.answers import zoom
from ingero.serve.answers.query import Range
from ingero.serve.answers.zoom import ZoomAnswer, get_zoom
from ingero.serve.answers.zoom_events import ZoomTrack
from ingero.store.writer import Writer
from tests.builders import (
    EPOCH_NS,
    OPERATIONS,
    SECOND,
    call,
    fixed_clock,
    in_flight,
    operation,
    process,
    records,
    thread,
    wait,
    window,
    xid,
)

MS = 1_000_000


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Three seconds: a thousand short launches, one long synchronising call, a wait, a fault."""
    path = tmp_path / "x.db"
    many = [call("cudaLaunchKernel", 2_000 + number, at_ns=number * 100_000) for number in range(1000)]
    long = call("cudaStreamSynchronize", 400 * MS, at_ns=SECOND + 100 * MS)
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        first = window(
            0,
            calls=records(*many),
            waits=wait("runqueue", 30 * MS, at_ns=200 * MS),
            threads=records(thread(host_cpu=600 * MS, runqueue=400 * MS), thread(200, sleep=SECOND)),
            operations=operation("cudaLaunchKernel", [2_500] * 1000),
            processes=[process()],
            system=SystemSample(0.5, None, None, None, 8, None),
        )
        second = window(
            SECOND, calls=long, threads=thread(gpu_wait=SECOND), xids=xid(at_ns=SECOND + 7),
            operations=operation("cudaStreamSynchronize", [400 * MS]),
        )  # fmt: skip
        third = window(
            2 * SECOND,
            threads=thread(gpu_wait=SECOND),
            in_flight=in_flight(since_ns=SECOND + 900 * MS, now_ns=3 * SECOND),
        )
        for each in (first, second, third):
            assert writer.write(each) == ""
    return path


def asked(db: Path, width: int = 1000, start: int = 0, end: int = 3 * SECOND) -> ZoomAnswer:
    return get_zoom(db, Range(None, str(EPOCH_NS + start), str(EPOCH_NS + end)), width)


def tracks(answer: ZoomAnswer, kind: str) -> list[ZoomTrack]:
    return [each for each in answer.tracks if each.kind == kind]


@pytest.mark.parametrize("width", [50, 300, 1000, 4000])
def test_every_call_is_counted_however_narrow_the_screen(db: Path, width: int) -> None:
    answer = asked(db, width)
    assert answer.level == "calls"
    (calls,) = tracks(answer, "calls")
    assert sum(calls.count) == 1001
    assert len(calls.start_ns) <= width + 1


def test_what_is_drawn_as_one_names_the_longest(tmp_path: Path) -> None:
    calls = [
        call("cudaLaunchKernel", 2_000, at_ns=1000),
        call("cudaMemcpy", 9_000, at_ns=20_000),
        call("cudaFree", 3_000, at_ns=40_000),
        call("cudaLaunchKernel", 1_000, at_ns=900 * MS),
    ]
    with Writer(tmp_path / "x.db", "n", fixed_clock(), OPERATIONS) as writer:
        assert writer.write(window(0, calls=records(*calls))) == ""
    answer = asked(tmp_path / "x.db", 100, 0, SECOND)
    (found,) = tracks(answer, "calls")
    assert [answer.names[number] for number in found.name] == ["cudaMemcpy", "cudaLaunchKernel"]
    assert (found.count, found.longest_ns) == ([3, 1], [9_000, 1_000])
    assert (found.start_ns, found.length_ns) == ([0, 900 * MS], [10 * MS, 1_000])


def test_a_long_call_stands_by_itself_among_short_ones(db: Path) -> None:
    (calls,) = tracks(asked(db, 300), "calls")
    long = calls.longest_ns.index(400 * MS)
    assert calls.count[long] == 1
    assert (calls.start_ns[long], calls.length_ns[long]) == (SECOND + 100 * MS, 400 * MS)


def test_labels_are_rows_of_their_process(tmp_path: Path) -> None:
    said = [Annotation(100, number * 100 * MS, "step", str(number)) for number in range(10)]
    with Writer(tmp_path / "x.db", "n", fixed_clock(), OPERATIONS) as writer:
        assert writer.write(window(0, processes=[process()], annotations=said)) == ""
    wide = asked(tmp_path / "x.db", 1000, 0, SECOND)
    (steps,) = tracks(wide, "labels")
    assert [wide.names[number] for number in steps.name] == [f"step {number}" for number in range(10)]
    assert steps.start_ns == [number * 100 * MS for number in range(10)]
    (narrow,) = tracks(asked(tmp_path / "x.db", 50, 0, 20 * SECOND), "labels")
    assert sum(narrow.count) == 10
    assert len(narrow.count) < 10


def test_close_up_each_call_is_itself(db: Path) -> None:
    answer = asked(db, 1000, 0, 1 * MS)
    (calls,) = tracks(answer, "calls")
    assert calls.count == [1] * 10
    assert [answer.names[number] for number in calls.name] == ["cudaLaunchKernel"] * 10
    assert calls.start_ns == [number * 100_000 for number in range(10)]
    assert len(set(calls.event)) == 10


def test_a_call_that_reaches_into_view_is_shown(db: Path) -> None:
    (calls,) = tracks(asked(db, 1000, SECOND + 300 * MS, SECOND + 310 * MS), "calls")
    assert calls.start_ns == [-200 * MS]
    assert calls.longest_ns == [400 * MS]


def test_waits_stand_apart_and_are_named_by_bucket(db: Path) -> None:
    answer = asked(db)
    (waits,) = tracks(answer, "waits")
    assert [answer.names[number] for number in waits.name] == ["runqueue"]
    assert answer.layers[waits.name[0]] == "wait"


def test_seconds_of_a_thread_are_shares_that_sum_to_all_of_it(db: Path) -> None:
    first, second = tracks(asked(db), "accounted")
    assert first.buckets == ["host_cpu", "runqueue", "gpu_wait"]
    assert np.sum(first.shares, axis=0) == pytest.approx([1.0, 1.0, 1.0])
    assert first.start_ns == [0, SECOND, 2 * SECOND]
    assert (second.tid, second.buckets) == (200, ["sleep"])


def test_many_rows_are_told_by_the_second(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoom, "MOST_ROWS", 100)
    answer = asked(db)
    assert answer.level == "seconds"
    assert not tracks(answer, "calls")
    (called,) = tracks(answer, "called")
    assert called.count == [1000, 1]
    assert [answer.names[number] for number in called.name] == ["cudaLaunchKernel", "cudaStreamSynchronize"]
    assert asked(db, 1000, 0, SECOND).level == "calls", "so close, seconds say nothing"


def test_counters_moments_and_calls_in_flight_are_there(db: Path) -> None:
    answer = asked(db)
    (cpu,) = tracks(answer, "counter")
    assert (cpu.title, cpu.unit, cpu.values) == ("CPU", "share", [0.5])
    (moments,) = tracks(answer, "moments")
    assert moments.start_ns[-1] == SECOND + 7
    (flying,) = tracks(answer, "in_flight")
    assert flying.start_ns == [SECOND + 900 * MS]


def test_a_stretch_without_anything_is_empty_and_no_error(db: Path) -> None:
    assert asked(db, 1000, 100 * SECOND, 101 * SECOND).tracks == []
