"""Synchronising too often: host and GPU take turns."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.facts import SEVERITIES, Story, job

KIND = "sync-heavy"


def turns(host_ms: float = 900, per_step: int = 10, slices: int = 12) -> Story:
    """A loop of 200 iterations per slice, each with `per_step` waits for the GPU."""
    story = job({"host_cpu": host_ms, "cuda_cpu": 0.0}, slices=slices)
    return story.calls("cudaStreamSynchronize", 200 * (per_step - 1), 100, split={"gpu_wait": 100})


def test_many_waits_per_iteration_are_found_and_counted() -> None:
    (finding,) = turns().findings()
    assert finding.kind == KIND
    assert "10 times per iteration" in finding.title
    assert "24000 synchronising calls in 2400 iterations" in finding.causes[0].evidence[0].text
    assert finding.effect.wall_share == pytest.approx(0.45 * 0.9, abs=0.001)


@pytest.mark.parametrize(("ms", "severity"), [each for each in SEVERITIES if each[0] < 900])
def test_severity_follows_the_share_of_time_lost(ms: float, severity: Severity | None) -> None:
    assert turns(host_ms=ms / 0.9).severity(KIND) is severity


def test_what_can_be_won_is_the_shorter_of_the_two_that_took_turns() -> None:
    (finding,) = turns(host_ms=1400).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3 * 0.9, abs=0.001)


@pytest.mark.parametrize("per_step", [1, 2, 4])
def test_a_few_waits_per_iteration_are_usual(per_step: int) -> None:
    assert turns(per_step=per_step).kinds() == []


def test_waits_with_a_deep_queue_before_each_are_harmless() -> None:
    assert turns().calls("cuLaunchKernel", 40_000, 50, caller=1).kinds() == []


def test_a_job_that_computes_on_the_host_with_one_wait_is_not_blamed_for_syncing() -> None:
    assert job({"host_cpu": 1200.0}, {"host_cpu": 1000.0}).kinds() == ["data-starvation"]


def test_a_healthy_run_is_quiet() -> None:
    assert turns(host_ms=20).kinds() == []


@pytest.mark.parametrize("source", ["calls", "sched"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert turns().abstains(KIND, source)
