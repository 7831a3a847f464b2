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
