"""A merged database answers what each of its nodes answers by itself: nothing is mixed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingero.errors import UsageError
from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample
from ingero.model.operations import KernelName, Operation
from ingero.model.report import LabelReport, LabelTime
from ingero.model.window import Annotation, Window
from ingero.serve.answers.accounting import accounting
from ingero.serve.answers.collectives import get_collectives
from ingero.serve.answers.compare import compare
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.flame import folded, get_flame
from ingero.serve.answers.gpu_series import get_gpus
from ingero.serve.answers.graphs import get_graphs
from ingero.serve.answers.heatmap import get_heatmap
from ingero.serve.answers.labels import parse_labels
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.query import Range, ask_by_label, ask_kernels, ask_statistics
from ingero.serve.answers.several_nodes import combined
from ingero.serve.answers.stacks import get_stacks
from ingero.serve.answers.zoom import get_zoom
from ingero.store.merge.result import merge
from ingero.store.writer import Writer
from tests import builders
from tests.builders import (
    EPOCH_NS,
    OPERATIONS,
    SECOND,
    FakeTime,
    call,
    finding,
    operation,
    process,
    process_report,
    report,
    sample,
    thread,
    unexplained,
    wait,
    window,
)
from tests.sites import resolved

MS = 1_000_000
NODES = ("a", "b")
EXECUTABLE = 0x7F0000002000
MORE = (Operation(100, "cudaGraphInstantiate", "graph", "graph"),)
Rows = list[Any]


def busy(at_s: int, node: str, seconds: int) -> Window:
    """The same processes, threads, handles and stacks on each node; b does everything twice, and longer."""
    start_ns, times = at_s * SECOND, 1 + (node == "b")
    launches = [call("cuLaunchKernel", 5_000, at_ns=start_ns + at * MS) for at in range(3 * times)]
    for each in launches:
        each["kernel"] = 1
    calls = [
        *launches,
        call("cudaGraphInstantiate", 3_000, at_ns=start_ns + 50 * MS, out=EXECUTABLE, args=(0, 7)),
        *(
            call("cudaGraphLaunch", 1_000 * times, at_ns=start_ns + (60 + at) * MS, args=(EXECUTABLE, 9))
            for at in range(2 * times)
        ),
        call("ncclAllReduce", at_ns=start_ns + 300 * MS * times, bytes=64, args=(0, 0, 16, 7, 0),
             comm_hash=99, seq=at_s, rank=times - 1, nranks=2),
    ]  # fmt: skip
    return window(
        start_ns,
        kernels={1: KernelName("void scale<4>(float*)")},
        stacks=[resolved("forward train.py:142", 11)],
        calls=calls,
        call_stacks=np.array([11] * len(calls), np.int64),
        waits=[wait("disk_wait", 20 * MS * times, at_ns=start_ns + 700 * MS)],
        wait_stacks=np.array([11], np.int64),
        samples=[sample(11, 5 * times)],
        operations=[
            operation("cuLaunchKernel", [5_000] * 3 * times),
            operation("cudaGraphLaunch", [1_000 * times] * 2 * times),
            operation("cudaGraphInstantiate", [3_000]),
        ],
        threads=[thread(gpu_wait=SECOND // 4 * times, host_cpu=SECOND - SECOND // 4 * times)],
        processes=[process(comm=f"train-{node}")],
        annotations=[Annotation(100, start_ns + 10, "step", str(at_s % seconds))],
        gpus=GpuNews(
            (GpuCard(0, f"card of {node}", f"GPU-{node}"),),
            (GpuSample(0, start_ns + 50, 0.25 * times),),
            (GpuProcess(0, start_ns + 50, 100, "train", 4096 * times, 0.25),),
        ),
    )


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Node a recorded four seconds, node b two of them."""
    monkeypatch.setattr(builders, "NUMBERS", builders.NUMBERS | {each.name: each.number for each in MORE})
    for node, seconds in zip(NODES, (4, 2), strict=True):
        time = FakeTime()
        with Writer(tmp_path / f"{node}.db", node, time.clock(), (*OPERATIONS, *MORE), cores=8) as writer:
            for at_s in range(seconds):
                assert writer.write(busy(at_s, node, seconds)) == ""
            time.advance(seconds * SECOND)
    return {node: tmp_path / f"{node}.db" for node in NODES}


@pytest.fixture
def merged(parts: dict[str, Path], tmp_path: Path) -> Path:
    merge(list(parts.values()), tmp_path / "all.db")
    return tmp_path / "all.db"


def _operations(path: Path, node: str | None = None) -> Rows:
    return ask_statistics(path, Range(), Filters(), 100, node).operations


def _kernels(path: Path, node: str | None = None) -> Rows:
    return ask_kernels(path, Range(), Filters(), 100, node).kernels


def _collectives(path: Path, node: str | None = None) -> Rows:
    # Waiting is for ranks of other nodes: alone, nobody knows how long.
    return [
        (each.node, each.pid, each.rank, each.calls) for each in get_collectives(path, Range(), node).ranks
    ]


def _heat(path: Path, node: str | None = None) -> Rows:
    answer = get_heatmap(path, Range(start=str(EPOCH_NS // SECOND)), Filters(), 100, node)
    return [(each.node, each.op, each.count, list(zip(each.column, each.calls, strict=True)))
            for each in answer.operations]  # fmt: skip


def _time(path: Path, node: str | None = None) -> Rows:
    return accounting(get_report(path, Range(), node=node)).processes


def _by_step(path: Path, node: str | None = None) -> Rows:
    labelled = ask_by_label(path, Range(), Filters(), 100, node, parse_labels([], "step"))
    return [(each.value, row) for each in labelled.values for row in each.operations]


def _tracks(path: Path, node: str | None = None) -> Rows:
    answer = get_zoom(path, Range(start=str(EPOCH_NS // SECOND)), 100, node)
    return [(each.node, each.kind, each.pid, each.tid, each.title, each.count, each.start_ns, each.values)
            for each in answer.tracks]  # fmt: skip


def _flame(path: Path, node: str | None = None) -> Rows:
    return [(each.name, each.value) for each in get_flame(path, Range(), node=node).root.children]


ANSWERS: tuple[Callable[..., Rows], ...] = (
    _operations,
    _kernels,
    lambda path, node=None: get_graphs(path, Range(), node=node).processes,
    lambda path, node=None: get_graphs(path, Range(), node=node).launched,
    lambda path, node=None: get_graphs(path, Range(), node=node).events,
    lambda path, node=None: get_gpus(path, Range(), node=node).gpus,
    _collectives,
    _heat,
    _time,
    _by_step,
    _flame,
)


def _as_text(rows: Rows) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_answer_about_all_is_that_of_each_node(
    answer: Callable[..., Rows], parts: dict[str, Path], merged: Path
) -> None:
    alone = [row for path in parts.values() for row in answer(path)]
    assert len(alone) >= 2
    assert _as_text(answer(merged)) == _as_text(alone)
    for node, path in parts.items():
        assert _as_text(answer(merged, node)) == _as_text(answer(path))


def test_the_wall_share_is_of_the_nodes_own_time(merged: Path) -> None:
    found = {each.node: each for each in _operations(merged) if each.op == "cuLaunchKernel"}
    assert found["a"].wall_share == pytest.approx(4 * 3 * 5_000 / (4 * SECOND))
    assert found["b"].wall_share == pytest.approx(2 * 6 * 5_000 / (2 * SECOND))
    assert (found["a"].pids, found["b"].pids) == ((100,), (100,))


def test_the_share_of_a_label_is_of_the_time_it_held_on_that_node(merged: Path) -> None:
    answer = ask_by_label(merged, Range(), Filters(), 100, None, parse_labels(["step=0..9"], "step"))
    rows = [row for each in answer.values for row in each.operations if row.op == "cuLaunchKernel"]
    assert {row.node for row in rows} == {"a", "b"}
    assert all(row.wall_share == pytest.approx(row.sum_ns / SECOND, rel=0.05) for row in rows)


def test_a_place_in_the_code_says_on_which_node_and_counts_processes_of_each(merged: Path) -> None:
    found = {each.op: each for each in get_stacks(merged, Range()).stacks}
    assert (found["cuLaunchKernel"].node, found["cuLaunchKernel"].pid) == ("a", 100)
    assert found["cuLaunchKernel"].processes == 2
    assert found["cuLaunchKernel"].calls == 4 * 3 + 2 * 6


def test_tracks_of_a_process_are_its_nodes_own(parts: dict[str, Path], merged: Path) -> None:
    for node, path in parts.items():
        theirs = [each for each in _tracks(merged) if each[0] == node]
        assert {each[1] for each in theirs} >= {"calls", "waits", "accounted", "counter", "labels"}
        alone = {each[:5]: each[5:] for each in _tracks(path)}
        assert {each[:5] for each in theirs} == set(alone)
        assert all(sum(each[5]) == sum(alone[each[:5]][0]) for each in theirs)


def test_stacks_of_each_node_have_their_own_root(parts: dict[str, Path], merged: Path) -> None:
    together = list(folded(merged, Range(), "samples"))
    alone = [f"{node};{line}" for node, path in parts.items() for line in folded(path, Range(), "samples")]
    assert sorted(together) == sorted(alone)


def test_events_of_several_nodes_are_in_order_of_time(merged: Path) -> None:
    at = [each.at_ns for each in get_graphs(merged, Range()).events]
    assert len(at) == 6
    assert at == sorted(at)


def test_a_process_that_took_the_pid_of_another_is_counted_apart(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with Writer(path, "n", FakeTime().clock(), OPERATIONS) as writer:
        for number, start_ns in enumerate((0, SECOND)):
            seen = window(
                start_ns,
                calls=[call("cudaGraphLaunch", at_ns=start_ns + 600 * MS, args=(EXECUTABLE, 9))],
                operations=[operation("cudaGraphLaunch")],
                processes=[process(100, start_ns + 500 * MS, comm=f"run-{number}")],
            )
            assert writer.write(seen) == ""
    answer = get_graphs(path, Range())
    assert [each.calls for each in answer.processes] == [{"launch": 1}, {"launch": 1}]
    assert [each.launches for each in answer.launched] == [1, 1]


def test_the_diagnosis_of_several_nodes_says_whose_everything_is() -> None:
    value = LabelTime("7", (100,), SECOND, {"gpu_wait": SECOND}, 1.0)
    by = LabelReport("step", 1, SECOND, [value])
    reports = [
        report(finding(id=f"{node}:cpu-contention:100:1"), node=node, unexplained=[unexplained()], by=by)
        for node in NODES
    ]
    both = combined(reports, SECOND)
    assert both.of_several
    assert [each.node for each in both.unexplained] == ["a", "b"]
    assert both.by is not None
    assert [(each.pids, each.nodes) for each in both.by.values] == [((100, 100), ("a", "b"))]
    assert not report().of_several


def test_findings_are_compared_with_those_of_the_same_node() -> None:
    def of(*nodes: str) -> Any:
        processes = [process_report(node=node) for node in nodes]
        return report(*(finding(id=f"{node}:cpu-contention:100:1") for node in nodes), processes=processes)

    changes = compare("x", of("a", "b"), "y", of("b", "c")).findings
    pairs = [(each.before and each.before.node, each.after and each.after.node) for each in changes]
    assert pairs == [("a", "c"), ("b", "b")]


def test_a_label_that_jobs_of_one_node_said_is_asked_for_of_all(tmp_path: Path) -> None:
    for node in NODES:
        said = [Annotation(100, 10, "step", "7")] if node == "a" else []
        with Writer(tmp_path / f"{node}.db", node, FakeTime().clock(), OPERATIONS) as writer:
            seen = window(threads=[thread(gpu_wait=SECOND)], processes=[process()], annotations=said)
            assert writer.write(seen) == ""
    merge([tmp_path / f"{node}.db" for node in NODES], tmp_path / "all.db")
    assert get_report(tmp_path / "all.db", Range(), labels=parse_labels(["step=7"])).node == "a"
    told = get_report(tmp_path / "all.db", Range(), labels=parse_labels([], "step"))
    assert told.node == "a, b"
    assert told.by is not None
    assert [(each.value, each.nodes) for each in told.by.values] == [("7", ("a",))]
    for labels in (parse_labels(["epoch=1"]), parse_labels([], "epoch")):
        with pytest.raises(UsageError, match="no job said its epoch"):
            get_report(tmp_path / "all.db", Range(), labels=labels)


def test_a_finding_is_put_behind_one_of_its_own_node_only() -> None:
    """A process of another node has the same number."""
    changed = builders.Effect("step", 10, 20, 10, 0.05)
    always = builders.Effect("step", None, None, 10, 0.3)
    slower = finding(id="a:slowdown:100:1", severity="LOW", kind="slowdown", effect=changed)
    worse = finding(id="b:disk-wait:100:1", severity="HIGH", kind="disk-wait", effect=always)
    both = combined([report(slower, node="a"), report(worse, node="b")], SECOND)
    assert [each.node for each in both.findings] == ["b", "a"]
