"""The whole bill of tracing, on a live kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ingero.attach import probe_cost
from tests.ebpf.real_runs import Place, finished, json_lines
from tests.ebpf.tracing import workload

pytestmark = pytest.mark.timeout(120)


def test_a_switch_is_timed_and_nothing_stays_open_or_pinned() -> None:
    held, cores = len(list(Path("/proc/self/fd").iterdir())), os.sched_getaffinity(0)
    found = probe_cost.switch_ns()
    assert found is not None
    assert found > 0
    assert len(list(Path("/proc/self/fd").iterdir())) == held
    assert os.sched_getaffinity(0) == cores
    assert probe_cost.added_ns(found, None) is None
    assert probe_cost.added_ns(100.0, 350.0) == 250.0
    assert probe_cost.added_ns(100.0, 90.0) == 0.0


def test_a_recording_says_what_the_agent_took_and_what_everybody_else_paid(place: Place, steady: str) -> None:
    with workload(steady) as job:
        job.start()
        done = place.ingero(
            "trace", "--pid", str(job.pid), "--duration", "3s", "--no-tui", "--db", str(place.db)
        )
        finished(job)
    assert done.returncode == 0, done.stderr
    cost = json_lines(place.ingero("explain", "-d", str(place.db), "--json").stdout)[0]["overhead"]
    assert cost["agent_cpu_share"] > 0
    assert cost["taken_from_job_share"] >= 0
    assert 0 <= cost["bystanders_share"] < 1
    assert cost["switches_per_s"] > 0
    assert "ingero itself used" in place.ingero("explain", "-d", str(place.db)).stdout
    others = place.sql("SELECT COUNT(*), COUNT(switches_ns) FROM own_cost")
    assert others[0][0] == others[0][1]
