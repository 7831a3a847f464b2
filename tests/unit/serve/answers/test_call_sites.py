"""Which lines of a process cost most, and the same as folded stacks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingero.errors import UsageError
from ingero.model.layout import SampleFlag
from ingero.model.report import CodeLine
from ingero.model.sites import SAMPLE_NS
from ingero.model.stack import Frame, ResolvedStack
from ingero.model.window import Window
from ingero.serve.answers.call_sites import process_lines
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.flame import folded
from ingero.serve.answers.query import Range
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import (
    EPOCH_NS,
    OPERATIONS,
    SECOND,
    call,
    fixed_clock,
    process,
    sample,
    thread,
    wait,
    window,
)
from tests.sites import resolved

FORWARD, LOAD, CRUNCH = (
    resolved(line, number)
    for number, line in enumerate(("forward train.py:142", "load loader.py:7", "crunch train.py:9"), 11)
)
ALL_TIME = TimeRange(EPOCH_NS, EPOCH_NS + 10 * SECOND, "given")
GIL, COLLECTING = int(SampleFlag.SAMPLE_GIL), int(SampleFlag.SAMPLE_COLLECTING)
HOLDER = 101


def hashes(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def story() -> Window:
    """Process 100 calls from two lines, waits for its lock, and another thread of it crunches."""
    return window(
        processes=[process(100), process(200, comm="other")],
        threads=[thread(100, gpu_wait=SECOND)],
        calls=[
            call("cudaMalloc", 3_000, bytes=64, weight=2),
            call("cudaMalloc", 2_000, bytes=10),
            call("cudaMemcpy", 9_000, bytes=5),
            call("cudaMalloc", 1_000, pid=200),
        ],
        call_stacks=hashes(11, 12, 12, 12),
        waits=[
            wait("lock_wait", 5_000_000, gil=2, holder_tid=HOLDER),
            wait("disk_wait", 2_000_000),
        ],
        wait_stacks=hashes(11, 12),
        samples=[
            sample(11, 30),
            sample(11, 10, flags=COLLECTING),
            sample(12, 10),
            sample(13, 40, tid=HOLDER, flags=GIL),
            sample(12, 900, tid=HOLDER, bucket="gpu_wait"),
        ],
        stacks=[FORWARD, LOAD, CRUNCH],
    )


def stored(path: Path, windows: Iterable[Window]) -> Path:
    with Writer(path, "n1", fixed_clock(), OPERATIONS) as writer:
        for each in windows:
            assert writer.write(each) == ""
    return path


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return stored(tmp_path / "a.db", [story()])


def lines(db: Path, pid: int = 100, what: str | None = None) -> list[CodeLine]:
    with Reader(db) as reader:
        found = process_lines(reader, ALL_TIME).get(pid, [])
    return [each for each in found if what in (None, each.what)]


def place(line: CodeLine) -> str:
    return f"{line.function} {line.file}:{line.line}"


def test_calls_come_from_lines_the_one_with_most_time_first(db: Path) -> None:
    found = [(each.op, place(each), each.count, each.ns, each.bytes) for each in lines(db, what="call")]
    assert found == [
        ("cudaMemcpy", "load loader.py:7", 1, 9_000, 5),
        ("cudaMalloc", "forward train.py:142", 2, 6_000, 128),
        ("cudaMalloc", "load loader.py:7", 1, 2_000, 10),
    ]
    assert [each.share for each in lines(db, what="call")] == [1.0, 0.75, 0.25]


def test_host_time_is_divided_by_thread_and_line_with_the_collectors_part(db: Path) -> None:
    main = [each for each in lines(db, what="cpu") if each.tid == 100]
    assert [(place(each), each.count, each.share, each.collecting_share) for each in main] == [
        ("forward train.py:142", 40, 0.8, 0.25),
        ("load loader.py:7", 10, 0.2, 0.0),
    ]
    assert main[0].ns == round(40 * SAMPLE_NS)


def test_spinning_for_the_gpu_is_no_host_time(db: Path) -> None:
    (crunching,) = (each for each in lines(db, what="cpu") if each.tid == HOLDER)
    assert (place(crunching), crunching.share) == ("crunch train.py:9", 1.0)


def test_waits_are_told_by_line_and_bucket(db: Path) -> None:
    assert [(each.bucket, place(each), each.ns) for each in lines(db, what="wait")] == [
        ("lock_wait", "forward train.py:142", 5_000_000),
        ("disk_wait", "load loader.py:7", 2_000_000),
    ]


def test_who_held_the_interpreters_lock_is_told_with_the_line_it_was_seen_at(db: Path) -> None:
    (holder,) = lines(db, what="gil")
    assert (holder.tid, place(holder), holder.held_ns) == (HOLDER, "crunch train.py:9", 5_000_000)


def test_another_process_has_its_own_lines(db: Path) -> None:
    assert [(each.what, place(each)) for each in lines(db, pid=200)] == [("call", "load loader.py:7")]


def test_explain_has_the_lines_of_each_process(db: Path) -> None:
    report = get_report(db, Range(), now_ns=EPOCH_NS + 10**15)
    (mine,) = (each for each in report.processes if each.pid == 100)
    assert {each.what for each in mine.lines} == {"call", "cpu", "wait", "gil"}


def test_without_stacks_there_are_no_lines(tmp_path: Path) -> None:
    bare = window(calls=[call()], waits=[wait()], samples=[sample(0, 5)], threads=[thread()])
    db = stored(tmp_path / "bare.db", [bare])
    with Reader(db) as reader:
        assert process_lines(reader, ALL_TIME) == {}


def test_a_native_stack_is_told_by_its_function(tmp_path: Path) -> None:
    native = ResolvedStack(5, (Frame("native", "epoll_wait", None, None, "libc.so.6"),))
    db = stored(tmp_path / "n.db", [window(calls=[call()], call_stacks=hashes(5), stacks=[native])])
    (line,) = lines(db)
    assert (line.function, line.file, line.line) == ("epoll_wait", None, None)


# --- folded -----------------------------------------------------------------------------


def fold(db: Path, what: str, **more: Any) -> dict[str, int]:
    """The last two frames of each stack, and its weight."""
    found = {}
    for line in folded(db, Range(), what, **more):
        path, _, weight = line.rpartition(" ")
        found[";".join([path.split(";")[0], *path.split(";")[2:3]])] = int(weight)
    return found


@pytest.mark.parametrize(
    ("what", "more", "expected"),
    [
        ("calls", {"pid": 100}, {"forward (train.py:142)": 2, "load (loader.py:7)": 2}),
        ("calls", {"pid": 100, "op": "cudamalloc"}, {"forward (train.py:142)": 2, "load (loader.py:7)": 1}),
        ("bytes", {"pid": 100}, {"forward (train.py:142)": 128, "load (loader.py:7)": 15}),
        ("waits", {"op": "disk_wait"}, {"load (loader.py:7)": 2_000_000}),
        ("samples", {}, {"load (loader.py:7)": 910, "forward (train.py:142)": 40, "crunch (train.py:9)": 40}),
    ],
)
def test_folded_stacks_weigh_what_was_asked_for(
    db: Path, what: str, more: dict[str, Any], expected: dict[str, int]
) -> None:
    assert fold(db, what, **more) == {f"python (100);{name}": weight for name, weight in expected.items()}


def test_the_outermost_frame_comes_first_and_the_process_before_it(db: Path) -> None:
    first = next(folded(db, Range(), "waits"))
    assert first == (
        "python (100);main (train.py:1);forward (train.py:142);Module._call_impl (module.py:1750);"
        "cudaLaunchKernel (libcudart.so.12) 5000000"
    )


def test_what_has_no_stack_stands_beside_the_others(tmp_path: Path) -> None:
    db = stored(tmp_path / "b.db", [window(calls=[call(), call()], processes=[process()])])
    assert list(folded(db, Range(), "calls")) == ["python (100);[no stack] 2"]


def test_a_name_cannot_break_the_format(tmp_path: Path) -> None:
    evil = ResolvedStack(5, (Frame("python", "a;b\nc 9", "x;y.py", 1, None),))
    db = stored(tmp_path / "e.db", [window(calls=[call()], call_stacks=hashes(5), stacks=[evil])])
    (line,) = folded(db, Range(), "calls")
    assert line.count(";") == 1
    assert "\n" not in line
    assert line.endswith(" 1")


@pytest.mark.parametrize(("what", "op"), [("calls", "cudaNope"), ("waits", "cudaMalloc")])
def test_an_unknown_operation_is_refused(db: Path, what: str, op: str) -> None:
    with pytest.raises(UsageError):
        list(folded(db, Range(), what, op=op))
