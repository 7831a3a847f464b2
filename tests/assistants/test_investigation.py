"""An assistant that follows the prompt finds out what is wrong, in three calls at most."""

from __future__ import annotations

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
