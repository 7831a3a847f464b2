"""CUDA graphs: how they came to be, how often they are launched."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ingero.model.operations import Operation
from ingero.serve.answers.graphs import get_graphs
from ingero.serve.answers.query import Range
from ingero.serve.mcp.parts import launched_part
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests import builders
from tests.builders import SECOND, call, fixed_clock, operation, records, window

STEPS = (
    "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphExecUpdate",
    "cudaGraphExecDestroy", "cudaGraphDestroy",
)  # fmt: skip
MORE = tuple(Operation(100 + number, name, "graph", "graph") for number, name in enumerate(STEPS))
EVERY_50_MS = range(0, SECOND // 2 + 1, SECOND // 20)
GRAPH, EXECUTABLE = 0x7F0000001000, 0x7F0000002000


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(builders, "NUMBERS", builders.NUMBERS | {each.name: each.number for each in MORE})
    calls = records(
        call("cudaStreamBeginCapture", at_ns=1, stream=9),
        call("cudaStreamEndCapture", at_ns=2, stream=9, out=GRAPH),
        call("cudaGraphInstantiate", 3_000, at_ns=3, out=EXECUTABLE, args=(0, GRAPH)),
        *(call("cudaGraphLaunch", 10_000, at_ns=10 + at, args=(EXECUTABLE, 9)) for at in EVERY_50_MS),
        call("cudaGraphLaunch", 10_000, at_ns=20, args=(EXECUTABLE, 9), nested=True),
        call("cudaGraphLaunch", 10_000, at_ns=30, args=(EXECUTABLE + 1, 9), pid=200),
        call("cudaGraphExecUpdate", at_ns=SECOND - 9, args=(EXECUTABLE, GRAPH), ret=910),
        call("cudaGraphExecDestroy", at_ns=SECOND - 8, args=(EXECUTABLE,)),
        call("cudaGraphDestroy", at_ns=SECOND - 7, args=(GRAPH,)),
    )  # fmt: skip
    operations = records(
        operation("cudaGraphLaunch", [10_000] * 11), operation("cudaGraphInstantiate", [3_000]),
        operation("cudaGraphLaunch", [10_000], pid=200),
    )  # fmt: skip
    path = tmp_path / "x.db"
    with Writer(path, "n", fixed_clock(), (*builders.OPERATIONS, *MORE)) as writer:
        assert writer.write(window(calls=calls, operations=operations)) == ""
    return path


def test_the_steps_are_told_in_order_with_their_handles(db: Path) -> None:
    events = get_graphs(db, Range(), pid=100).events
    assert [each.step for each in events] == [
        "begin_capture", "end_capture", "instantiate", "update", "destroy_executable", "destroy",
    ]  # fmt: skip
    assert [each.graph for each in events] == [None, GRAPH, GRAPH, GRAPH, None, GRAPH]
    assert [each.executable for each in events] == [None, None, EXECUTABLE, EXECUTABLE, EXECUTABLE, None]
    assert events[3].ret == 910


def test_launches_are_counted_by_graph_without_nested_ones(db: Path) -> None:
    first, second = get_graphs(db, Range()).launched
    assert (first.pid, first.executable, first.launches) == (100, EXECUTABLE, 11)
    assert first.per_s == pytest.approx(20, rel=0.01)
    assert (second.pid, second.launches, second.per_s) == (200, 1, None)


def test_all_calls_are_counted_by_process(db: Path) -> None:
    first, second = get_graphs(db, Range()).processes
    assert first.calls == {"launch": 11, "instantiate": 1}
    assert first.making_ns == 3_000
    assert second.calls == {"launch": 1}


def test_a_recording_without_graphs_has_none(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with Writer(path, "n", fixed_clock(), builders.OPERATIONS) as writer:
        assert writer.write(window(calls=records(call()))) == ""
    answer = get_graphs(path, Range())
    assert (answer.events, answer.launched, answer.processes) == ([], [], [])


def test_a_handle_that_is_not_known_is_null_wherever_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builders, "NUMBERS", builders.NUMBERS | {each.name: each.number for each in MORE})
    path = tmp_path / "x.db"
    calls = records(
        call("cudaGraphLaunch", at_ns=1, args=(0, 9)),
        call("cudaGraphLaunch", at_ns=2, args=(EXECUTABLE, 9)),
        call("cudaGraphInstantiate", at_ns=3, args=(0, GRAPH), out=0, ret=1),
        call("cudaFree", at_ns=4, args=(0,)),
    )
    with Writer(path, "n", fixed_clock(), (*builders.OPERATIONS, *MORE)) as writer:
        assert writer.write(window(calls=calls)) == ""
    with Reader(path) as reader:
        told = reader.rows("SELECT op, arg0 FROM events ORDER BY timestamp")
    assert told == [
        ("cudaGraphLaunch", None), ("cudaGraphLaunch", EXECUTABLE), ("cudaGraphInstantiate", None),
        ("cudaFree", 0),
    ]  # fmt: skip

    def answered() -> None:
        answer = get_graphs(path, Range())
        assert {each.executable for each in answer.launched} == {None, EXECUTABLE}
        assert [each.executable for each in answer.events] == [None]
        assert [launched_part(each, 2, named=False)["executable"] for each in answer.launched].count(
            None
        ) == 1

    answered()
    old = sqlite3.connect(path)  # older recordings have a 0 there
    old.execute("UPDATE event SET arg0 = 0 WHERE arg0 IS NULL")
    old.execute("UPDATE event SET out = 0 WHERE out IS NULL")
    old.commit()
    old.close()
    answered()
