from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero.errors import UsageError
from ingero.model.window import Container, Window
from ingero.serve.answers.operations import Filters, OperationStats, operation_stats
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import EPOCH_NS, OPERATIONS, SECOND, FakeTime, operation, process, window

ALL_TIME = TimeRange(0, 2**62, "given")


OPENED: list[Any] = []


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    """A connection left open is a warning from Python 3.13 on."""
    yield
    while OPENED:
        OPENED.pop().close()


def _record(path: Path, *windows: Window, close: bool = True) -> Reader:
    times = FakeTime()
    writer = Writer(path, "n", times.clock(), OPERATIONS)
    for each in windows:
        assert writer.write(each) == ""
    times.advance(max(each.end_ns for each in windows))
    if close:
        writer.close()
    else:
        OPENED.append(writer)
    OPENED.append(Reader(path))
    return OPENED[-1]


def _only(stats: list[OperationStats]) -> OperationStats:
    (found,) = stats
    return found


def test_one_operation_is_summed_over_windows_and_processes(tmp_path: Path) -> None:
    windows = [
        window(
            n * SECOND,
            operations=[
                operation("cudaMemcpy", [1_000] * 99 + [80_000], pid=pid, bytes=10, errors=1)
                for pid in (100, 200)
            ],
        )
        for n in range(3)
    ]
    with _record(tmp_path / "x.db", *windows) as reader:
        answer = operation_stats(reader, ALL_TIME)
    found = _only(answer.operations)
    assert (found.layer, found.op, found.pids, found.count) == ("runtime", "cudaMemcpy", (100, 200), 600)
    assert (found.bytes, found.errors, found.exact, found.max_ns) == (60, 6, True, 80_000)
    assert found.p50_ns is not None
    assert abs(found.p50_ns - 1_000) < 125
    assert answer.recorded_ns == 3 * SECOND
    assert found.wall_share == found.sum_ns / (3 * SECOND)


def test_per_process_keeps_processes_apart(tmp_path: Path) -> None:
    seen = window(operations=[operation(pid=100), operation(pid=200)])
    with _record(tmp_path / "x.db", seen) as reader:
        found = operation_stats(reader, ALL_TIME, per_process=True).operations
    assert sorted(each.pids for each in found) == [(100,), (200,)]


def test_the_operation_with_most_time_comes_first(tmp_path: Path) -> None:
    seen = window(
        operations=[
            operation("cudaFree", [10]),
            operation("cudaMalloc", [10_000]),
            operation("cudaMemcpy", [500]),
        ]
    )
    with _record(tmp_path / "x.db", seen) as reader:
        found = operation_stats(reader, ALL_TIME).operations
    assert [each.op for each in found] == ["cudaMalloc", "cudaMemcpy", "cudaFree"]


def _tenants() -> Window:
    return window(
        operations=[operation("cudaFree", pid=100), operation("cudaMalloc", pid=200)],
        processes=[process(100, cgroup_id=7), process(200, cgroup_id=8)],
        containers=[
            Container(7, "/a", "abcdef012345", "docker", "pod-a", "red"),
            Container(8, "/b", "abxyz", None, "pod-b", "blue"),
        ],
    )


@pytest.mark.parametrize(
    "filters, ops",
    [
        (Filters(pid=100), ["cudaFree"]),
        (Filters(op="cudaMalloc"), ["cudaMalloc"]),
        (Filters(op="CUDAMALLOC"), ["cudaMalloc"]),
        (Filters(container="abcdef"), ["cudaFree"]),
        (Filters(pod="pod-b"), ["cudaMalloc"]),
        (Filters(namespace="red"), ["cudaFree"]),
        (Filters(namespace="green"), []),
        (Filters(namespace="red", pid=200), []),
        (Filters(), ["cudaFree", "cudaMalloc"]),
    ],
)
def test_filters_narrow_the_answer(tmp_path: Path, filters: Filters, ops: list[str]) -> None:
    with _record(tmp_path / "x.db", _tenants()) as reader:
        assert sorted(each.op for each in operation_stats(reader, ALL_TIME, filters).operations) == ops


@pytest.mark.parametrize("filters", [Filters(op="cudaNothing"), Filters(container="ab")])
def test_a_filter_that_cannot_match_is_a_mistake(tmp_path: Path, filters: Filters) -> None:
    with _record(tmp_path / "x.db", _tenants()) as reader, pytest.raises(UsageError):
        operation_stats(reader, ALL_TIME, filters)


@settings(max_examples=30, deadline=None)
@given(
    seconds=st.lists(st.integers(0, 400), min_size=1, max_size=40, unique=True),
    bounds=st.tuples(st.integers(-10, 420), st.integers(1, 420)),
    close=st.booleans(),
)
def test_rolled_up_or_not_the_count_of_a_range_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, seconds: list[int], bounds: tuple[int, int], close: bool
) -> None:
    path = tmp_path_factory.mktemp("roll") / "x.db"
    windows = [
        window(s * SECOND, operations=operation(durations_ns=[1_000] * (s + 1))) for s in sorted(seconds)
    ]
    start, length = bounds
    wanted = TimeRange(EPOCH_NS + start * SECOND, EPOCH_NS + (start + length) * SECOND, "given")
    with _record(path, *windows, close=close) as reader:
        found = operation_stats(reader, wanted).operations
    assert sum(each.count for each in found) == sum(s + 1 for s in seconds if start <= s < start + length)


def test_when_the_seconds_are_gone_whole_minutes_answer(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    _record(path, *[window(s * SECOND, operations=operation()) for s in range(0, 300, 10)]).close()
    import sqlite3

    trimmed = sqlite3.connect(path)
    trimmed.execute("DELETE FROM operation_second WHERE start_ns < ?", (EPOCH_NS + 250 * SECOND,))
    trimmed.commit()
    trimmed.close()
    with Reader(path) as reader:
        assert _only(operation_stats(reader, ALL_TIME).operations).count == 30


def test_windows_written_out_of_order_are_rolled_up_too(tmp_path: Path) -> None:
    order = [0, 200, 10, 130, 70]
    with _record(tmp_path / "x.db", *[window(s * SECOND, operations=operation()) for s in order]) as reader:
        assert _only(operation_stats(reader, ALL_TIME).operations).count == 5
        assert reader.rows("SELECT SUM(count) FROM operation_minute") == [(5,)]
