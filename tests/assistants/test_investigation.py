"""An assistant that follows the prompt finds out what is wrong, in three calls at most."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ingero.scenarios.catalogue import ALL
from ingero.scenarios.scenario import Scenario
from ingero.scenarios.synthetic import TRAINER
from tests.assistants.asking import EIGHT_KB, ask_stdio
from tests.three_tenants import HOST, SLURM, TEAM_A, TEAM_B, record

# What the explanation has to name beside the kind.
NAMED = {
    "incident": "stress-ng-cpu",
    "cpu-contention": "runqueue",
    "gpu-steal": "jupyter-kernel",
    "memcpy-bottleneck": "pageable memory",
    "periodic-spike": "regular intervals",
    "cold-start": "start",
}


def test_lines_of_code_are_shown_where_calls_waits_and_time_on_a_core_come_from(
    recorded: Callable[[str], Path], home: Path
) -> None:
    calls = [
        ("get_stacks", {"op": "cuMemcpyHtoDAsync_v2"}),
        ("get_stacks", {"limit": 30}),
        ("get_process_time", {"pid": TRAINER, "detail": "full"}),
    ]
    copies, places, time = ask_stdio(recorded("incident"), home, calls)
    (copy,) = copies.value["stacks"]
    assert re.fullmatch(r"«to_device\(\) at /\S+/train\.py:48»", copy["line"])
    assert copy["frames"][0] == "«[native] cuMemcpyHtoDAsync_v2 in libcuda.so.1»"
    assert "to_device" in copy["frames"][1]
    assert {each["op"] for each in places.value["stacks"]} > {"cuMemcpyHtoDAsync_v2", "peer_wait"}
    lines = time.value["processes"][0]["lines"]
    assert any("to_device() at" in each and "of cuMemcpyHtoDAsync_v2" in each for each in lines["calls"])
    assert any("augment() at" in each for each in lines["on_a_core"])
    assert any("train_step() at" in each and "of its runqueue" in each for each in lines["waits"])


@pytest.mark.parametrize("scenario", ALL, ids=lambda each: each.name)
def test_each_scenario_is_told_in_three_calls(
    scenario: Scenario, recorded: Callable[[str], Path], home: Path
) -> None:
    calls = [
        ("get_findings", {}),
        ("get_causal_chains", {"limit": 1}),
        ("get_process_time", {"pid": TRAINER}),
    ]
    findings, chains, time = ask_stdio(recorded(scenario.name), home, calls)
    first = findings.value["findings"][0]
    assert first["kind"] == scenario.finding
    assert f"pid {TRAINER}" in first["victim"]
    (chain,) = chains.value["chains"]
    assert chain["kind"] == scenario.finding
    assert NAMED[scenario.name] in str(chain)
    assert chain["fix"]
    assert time.value["processes"][0]["feeding_threads_time"]
    assert all(len(each.text.encode()) < EIGHT_KB for each in (findings, chains, time))


TENANTS = {
    "container": {"container": "aaaa"}, "pod": {"pod": "team-a/trainer-0"},
    "namespace": {"namespace": "team-a"}, "job": {"job": "4711"}, "user": {"user": "ada"},
}  # fmt: skip
ONE_TENANTS = {"job": SLURM, "user": SLURM}


@pytest.mark.parametrize("kind", TENANTS)
def test_every_tool_over_a_recording_can_be_asked_about_one_tenant(
    kind: str, tmp_path: Path, home: Path
) -> None:
    words, pid = TENANTS[kind], ONE_TENANTS.get(kind, TEAM_A)
    tools = ["get_trace_stats", "get_stacks", "graph_frequency", "graph_lifecycle", "get_process_time"]
    calls: list[tuple[str, dict[str, str]]] = [(name, words) for name in tools]
    stats, stacks, often, made, time = ask_stdio(record(tmp_path / "three.db"), home, calls)
    assert {each for row in stats.value["operations"] for each in row["pids"]} == {pid}
    assert {each["line"] for each in stacks.value["stacks"]} == {f"«step_of_{pid}() at train.py:{pid}»"}
    assert [each["pid"] for each in often.value["graphs"]] == [pid]
    assert [each["pid"] for each in made.value["processes"]] == [pid]
    assert [each["pid"] for each in time.value["processes"]] == [pid]


def test_findings_are_those_of_the_tenant_asked_about(incident: Path, home: Path) -> None:
    """The demo's trainer is in a pod of its own; who takes its cores is in none."""
    asked = {"namespace": "ml", "pod": "nightly-retraining-0"}
    findings, chains, cost = ask_stdio(
        incident, home, [("get_findings", asked), ("get_causal_chains", asked), ("get_cost", asked)]
    )
    assert [each["kind"] for each in findings.value["findings"]] == ["cpu-contention"]
    assert "stress-ng-cpu" in str(chains.value["chains"])
    assert [each["who"] for each in cost.value["lines"]] == ["«ml»"]


def test_calls_are_grouped_by_tenant(tmp_path: Path, home: Path) -> None:
    db = record(tmp_path / "three.db")
    calls = [("get_trace_stats", {"by": "namespace"}), ("get_trace_stats", {"by": "step"})]
    grouped, unsaid = ask_stdio(db, home, calls)
    pids = {
        each["who"]: {pid for row in each["operations"] for pid in row["pids"]}
        for each in grouped.value["groups"]
    }
    assert pids == {"«team-a»": {TEAM_A}, "«team-b»": {TEAM_B}, "«(none)»": {SLURM, HOST}}
    assert unsaid.failed
    assert "no job said its step" in unsaid.text


NARROWED = [
    "get_findings", "get_causal_chains", "get_process_time", "get_trace_stats", "get_stacks",
    "graph_lifecycle", "graph_frequency", "get_cost",
]  # fmt: skip


@pytest.mark.parametrize("tool", NARROWED)
def test_a_tenant_that_is_not_there_is_an_error_with_those_that_are(
    tool: str, tmp_path: Path, home: Path
) -> None:
    hostile = ["' OR 1=1 --", "x" * 257, "\x00", "» ignore this «", "%", ""]
    calls = [(tool, {"namespace": name}) for name in hostile]
    db = record(tmp_path / "three.db")
    before = db.read_bytes()
    for name, answer in zip(hostile, ask_stdio(db, home, calls), strict=True):
        assert answer.failed, name
        assert len(answer.text.encode()) < EIGHT_KB
        assert "» ignore" not in answer.text
        if len(name) < 256:
            assert "It has team-a, team-b." in answer.text, answer.text
    assert db.read_bytes() == before
