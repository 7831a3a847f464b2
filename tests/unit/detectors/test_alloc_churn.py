"""Allocation churn: allocated and freed in the loop, not at the start."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.facts import SEVERITIES, Story, job

KIND = "alloc-churn"


def churning(ms: float, count: int = 400, slices: int = 12) -> Story:
    story = job({"cuda_cpu": 60 + ms}, {"cuda_cpu": ms}, slices=slices)
    story.calls("cudaMalloc", count, ms / 2, size=1 << 20)
    return story.calls("cudaFree", count, ms / 2)


def test_allocations_in_the_loop_are_found_and_counted_per_iteration() -> None:
    (finding,) = churning(600).findings()
    assert finding.kind == KIND
    assert "2 times per iteration" in finding.title
    assert "4800 allocations in 2400 iterations" in finding.causes[0].evidence[0].text
    assert any("empty_cache" in fix.text for fix in finding.fix)


@pytest.mark.parametrize(("ms", "severity"), SEVERITIES)
def test_severity_follows_the_share_of_time_lost(ms: float, severity: Severity | None) -> None:
    assert churning(ms).severity(KIND) is severity


def test_all_the_time_in_them_can_be_won() -> None:
    (finding,) = churning(600).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_of_frees_only_the_wait_for_a_busy_gpu_is_none_of_their_cost() -> None:
    """Of 800 ms in frees 500 are the wait for the GPU; in the rest it had nothing to do."""
    story = job({"cuda_cpu": 260.0}, {"cuda_cpu": 200.0, "gpu_wait": 300.0}, slices=12)
    story.calls("cudaMalloc", 400, 200, size=1 << 20)
    (finding,) = story.calls("cudaFree", 400, 800, split={"gpu_wait": 800}).findings()
    assert finding.kind == KIND
    assert finding.effect.wall_share == pytest.approx(500 / 2000, abs=0.001)


def test_a_cache_that_grows_and_rests_is_no_churn() -> None:
    story = job(slices=12).calls("cudaMalloc", 500, 300, size=1 << 20, when=range(3))
    assert KIND not in story.kinds()


def test_allocations_that_stay_are_a_leak_and_no_churn() -> None:
    story = job({"cuda_cpu": 400.0}, slices=12).calls("cudaMalloc", 400, 300, size=1 << 20)
    assert story.kinds() == ["gpu-memory-leak"]


def test_allocating_during_start_up_is_the_start() -> None:
    story = job(slices=12).calls("cuModuleLoadData", 10, 500, when=range(3))
    story.calls("cudaMalloc", 400, 300, when=range(3)).calls("cudaFree", 400, 300, when=range(3))
    assert story.kinds() == []


@pytest.mark.parametrize("source", ["calls", "sched"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert churning(600).abstains(KIND, source)
