"""The tables of a cluster, as far as an engine without servers has one: Distributed over one shard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_what_is_told_through_distributed_tables_is_kept_once_and_answered_as_on_one_machine(
    home: Path,
) -> None:
    """In a process of its own: the engine is there once in each, with one configuration."""
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    words = [sys.executable, "-m", "tests.fleet.in_a_cluster", str(home)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environ, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    asked = ("node_rounds", "job_rounds", "gpu_rounds", "findings", "stragglers", "nodes")
    assert {found["engines"][name] for name in asked} == {"Distributed"}
    assert found["stored"] == {"n": 2 + 3 * 8, "u": 2 + 3 * 8}
    assert found["states"]["n1"] == "critical"
    assert found["states"]["n5"] == "straggling"
    assert sorted(found["states"]) == [f"n{at}" for at in range(8)]
    assert found["points"] >= 1
    assert found["again"] == ["n5"]
