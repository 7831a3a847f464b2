"""Answers the dashboard needs: latencies over time, trees of stacks, ranks, one event, what is recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ingero.errors import TargetError, UsageError
from ingero.serve.answers.accounting import accounting
from ingero.serve.answers.collectives import get_collectives
from ingero.serve.answers.event_detail import get_event
from ingero.serve.answers.flame import FlameNode, get_flame
from ingero.serve.answers.gpu_series import get_gpus
from ingero.serve.answers.heatmap import get_heatmap
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.query import Range
from ingero.serve.answers.recordings import get_recordings
from ingero.store.writer import Writer
from tests import builders
from tests.builders import (
    EPOCH_NS,
    OPERATIONS,
    SECOND,
    call,
    fixed_clock,
    operation,
    process,
    records,
    thread,
    window,
)
from tests.sites import resolved

MS = 1_000_000


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "x.db"
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        first = window(
            0,
            calls=records(
                call("cudaMemcpy", 3 * MS, at_ns=10, bytes=4096, args=(0, 0, 4096, 1), weight=2),
                call("cudaMalloc", 1 * MS, at_ns=20 * MS, bytes=1 << 20),
                call("cudaLaunchKernel", 1 * MS, at_ns=30 * MS),
            ),
            operations=records(operation("cudaMemcpy", [3 * MS] * 2), operation("cudaMalloc", [MS])),
            threads=thread(cuda_cpu=SECOND),
            processes=[process()],
            stacks=[resolved("load train.py:10", 11), resolved("grow train.py:20", 12)],
            call_stacks=np.array([11, 12, 0], np.int64),
        )
        second = window(
            SECOND, operations=operation("cudaMemcpy", [50 * MS]), threads=thread(cuda_cpu=SECOND),
            calls=records(
                *(
                    call("ncclAllReduce", 1000, at_ns=SECOND + at * MS, pid=100 + rank, bytes=8, comm_hash=7,
                         seq=1, rank=rank, nranks=2)
                    for rank, at in ((0, 1), (1, 5))
                )
            ),
        )  # fmt: skip
        for each in (first, second):
            assert writer.write(each) == ""
    return path


def test_calls_lie_in_the_column_of_their_second_and_the_row_of_their_length(db: Path) -> None:
    found = get_heatmap(db, Range(), Filters())
    copies = next(each for each in found.operations if each.op == "cudaMemcpy")
    assert (found.columns, copies.column, copies.calls) == (2, [0, 1], [2, 1])
    for row, ns in zip(copies.row, (3 * MS, 50 * MS), strict=True):
        assert found.row_ns[row] <= ns <= found.row_ns[row + 1]
    assert (copies.count, copies.sum_ns) == (3, 56 * MS)
    assert [each.op for each in get_heatmap(db, Range(), Filters(op="cudaMalloc")).operations] == [
        "cudaMalloc"
    ]


def leaves(node: FlameNode) -> dict[str, float]:
    if not node.children:
        return {node.name: node.value}
    return {name: value for child in node.children for name, value in leaves(child).items()}


def check_sums(node: FlameNode) -> None:
    if node.children:
        assert sum(child.value for child in node.children) == pytest.approx(node.value)
    for child in node.children:
        check_sums(child)


def test_a_tree_weighs_calls_by_time_and_what_has_no_stack_stands_beside(db: Path) -> None:
    found = get_flame(db, Range())
    check_sums(found.root)
    # three copies were counted, and one record stands for all of them
    assert found.root.value == 3 * 3 * MS + MS + MS + 2000
    assert leaves(found.root)["cudaMemcpy"] == 9 * MS
    assert found.without_share == pytest.approx((MS + 2000) / (11 * MS + 2000))
    (owner,) = (each for each in found.root.children if "(100)" in each.name)
    assert owner.name == "python (100) on n"
    main = next(each for each in owner.children if each.kind == "python")
    assert (main.name, main.line) == ("main (train.py:1)", 1)


def test_allocations_are_weighed_in_bytes_and_nothing_else_is(db: Path) -> None:
    found = get_flame(db, Range(), "allocations")
    assert (found.unit, found.root.value) == ("bytes", 1 << 20)
    assert leaves(found.root) == {"cudaMalloc": 1 << 20}
    assert get_flame(db, Range(), "waits").root.value == 0
    with pytest.raises(UsageError):
        get_flame(db, Range(), "money")


def test_small_branches_are_put_together(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    calls = [call("cudaMemcpy", 10 * SECOND), *(call("cudaMemcpy", 10, at_ns=n) for n in range(50))]
    stacks = [resolved(f"f{number} train.py:{number + 1}", number + 1) for number in range(51)]
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        numbers = np.arange(1, 52, dtype=np.int64)
        assert writer.write(window(0, calls=records(*calls), stacks=stacks, call_stacks=numbers)) == ""
    found = get_flame(path, Range())
    check_sums(found.root)
    assert "[small ones]" in leaves(found.root)


def test_who_came_last_made_the_others_wait(db: Path) -> None:
    first, second = get_collectives(db, Range()).ranks
    assert (first.rank, first.waited_ns, first.came_last, first.known) == (0, 4 * MS, 0, 1)
    assert (second.rank, second.waited_ns, second.came_last, second.known) == (1, 0, 1, 1)
    assert (first.communicator, first.ranks, first.bytes) == ("0000000000000007", 2, 8)


def test_an_event_is_told_with_its_stack_and_line(db: Path) -> None:
    found = next(
        each for number in range(1, 9) if (each := event(db, f"n:{number}")) and each.op == "cudaMemcpy"
    )
    assert (found.at_ns, found.duration_ns, found.bytes, found.direction) == (
        EPOCH_NS + 10,
        3 * MS,
        4096,
        "HtoD",
    )
    assert (found.stands_for_calls, found.time) == (3, {"cuda_cpu": 3 * MS})
    assert found.source is not None
    assert (found.source.file, found.source.line) == ("train.py", 10)
    assert [each.function for each in found.stack][-1] == "main"


def event(db: Path, number: str):  # type: ignore[no-untyped-def]
    try:
        return get_event(db, number)
    except TargetError:
        return None


@pytest.mark.parametrize("name", ["n:99999", "m:1"])
def test_an_event_that_is_not_there_is_an_error(db: Path, name: str) -> None:
    with pytest.raises(TargetError):
        get_event(db, name)


@pytest.mark.parametrize("name", ["n:", ":", "x", "n:-1", "n:" + "9" * 30, "n:1.5", "n" * 999 + ":1"])
def test_what_is_no_id_of_an_event_is_told_the_form(db: Path, name: str) -> None:
    with pytest.raises(UsageError) as raised:
        get_event(db, name)
    assert "NODE:NUMBER" in raised.value.hint


def test_gpus_that_were_not_recorded_are_not_watched(db: Path) -> None:
    found = get_gpus(db, Range())
    assert not found.gpus
    assert found.not_watched is not None


def test_what_is_recorded_is_told_and_whether_it_goes_on(db: Path) -> None:
    found = get_recordings(db, Range(since="1s"), now_ns=EPOCH_NS + 2 * SECOND)
    assert (found.nodes, found.window.from_ns) == (["n"], EPOCH_NS)
    assert found.asked.to_ns - found.asked.from_ns == SECOND
    assert get_recordings(db, Range(), now_ns=EPOCH_NS + 60 * SECOND).live is False


def test_time_is_accounted_by_process_and_by_container() -> None:
    time = {"gpu_wait": 60, "host_cpu": 40}
    made = builders.report(
        processes=[
            builders.process_report(1, container="pod-a", time=time, threads_ns=100),
            builders.process_report(2, container="pod-a", time={"gpu_wait": 10}, threads_ns=10),
            builders.process_report(3, container=None, time={"sleep": 5}, threads_ns=5),
        ]
    )
    found = accounting(made)
    assert [each.pid for each in found.processes] == [1, 2, 3]
    first, second = found.containers
    assert (first.name, first.processes, first.threads_ns) == ("pod-a", 2, 110)
    assert first.time == {"gpu_wait": 70, "host_cpu": 40}
    assert (second.name, second.time) == ("outside containers", {"sleep": 5})
