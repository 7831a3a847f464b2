"""Synchronising too often: host and GPU take turns."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.facts import JOB, SEVERITIES, Story, job

KIND = "sync-heavy"


def turns(host_ms: float = 900, per_step: int = 10, slices: int = 12, gap_ms: float = 20) -> Story:
    """A loop of 200 iterations per slice, each with `per_step` waits for the GPU."""
    story = job({"host_cpu": host_ms, "cuda_cpu": 0.0}, {"host_cpu": gap_ms}, slices=slices)
    return story.calls("cudaStreamSynchronize", 200 * (per_step - 1), 100, split={"gpu_wait": 100})


def test_many_waits_per_iteration_are_found_and_counted() -> None:
    (finding,) = turns().findings()
    assert finding.kind == KIND
    assert "10 times per iteration" in finding.title
    assert "24000 waits for the GPU in 2400 iterations" in finding.causes[0].evidence[0].text
    assert finding.effect.wall_share == pytest.approx(0.45 * 0.9, abs=0.001)


@pytest.mark.parametrize(("ms", "severity"), [each for each in SEVERITIES if each[0] < 900])
def test_severity_follows_the_share_of_time_lost(ms: float, severity: Severity | None) -> None:
    assert turns(host_ms=ms / 0.9).severity(KIND) is severity


def test_what_can_be_won_is_the_shorter_of_the_two_that_took_turns() -> None:
    """600 ms of waiting for the GPU, and half of the time in which it then had nothing to do."""
    (finding,) = turns(host_ms=1400, gap_ms=200).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx((600 + 200 / 2) / 2000 * 0.9, abs=0.001)


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


def test_a_call_made_every_tenth_iteration_does_not_make_the_loop_sync_heavy() -> None:
    """A compiled model: ten launches and one wait per iteration; every tenth one logs, which allocates."""
    story = Story(12).process(JOB, "python3")
    story.thread(JOB, "python3", {"cuda_cpu": 60.0, "host_cpu": 600.0}, {"host_cpu": 20.0}, feeder=True)
    story.calls("cuLaunchKernel", 2000, 10, caller=1)
    story.calls("cudaStreamSynchronize", 200, 1300, split={"gpu_wait": 1300})
    assert story.calls("cudaMalloc", 20, 1).kinds() == []


@pytest.mark.parametrize(("graphs", "said"), [(1000, False), (501, False), (500, True)])
def test_decoding_one_token_at_a_time_is_not_synchronising_too_often(graphs: int, said: bool) -> None:
    """40 requests a slice of 25 tokens each; a token is one graph launch and one wait."""
    story = Story(12).process(JOB, "engine", listens=True)
    story.thread(JOB, "engine", {"host_cpu": 500.0, "cuda_cpu": 100.0}, feeder=True)
    story.calls("cudaGraphLaunch", graphs, 20).calls(
        "cudaStreamSynchronize", 1000, 1300, split={"gpu_wait": 1300}
    )
    story.calls("cuMemcpyHtoDAsync_v2", 40, 1, size=4096)
    assert story.kinds() == ([KIND] if said else [])


def looks(count: int = 2000, size: int = 4, waited: float = 0.95, slices: int = 12) -> Story:
    """A loop of 200 iterations per slice, with a value copied back after each of ten layers."""
    story = job({"host_cpu": 900.0, "cuda_cpu": 0.0}, {"host_cpu": 20.0}, slices=slices)
    split = {"gpu_wait": 900 * waited, "cuda_cpu": 900 * (1 - waited)}
    return story.calls("cuMemcpyDtoH_v2", count, 900, size=size, caller=1, split=split)


def test_values_read_back_again_and_again_are_waits_whatever_copies_them() -> None:
    (finding,) = looks().findings()
    assert finding.kind == KIND
    assert "10 times per iteration" in finding.title
    assert finding.effect.wall_share == pytest.approx(0.45 * 0.9, abs=0.001)


def test_a_value_read_back_and_the_wait_after_it_are_one() -> None:
    (finding,) = looks().calls("cudaStreamSynchronize", 1800, 2).findings()
    assert "10 times per iteration" in finding.title


@pytest.mark.parametrize("changed", [{"count": 800}, {"size": 1 << 20}, {"waited": 0.3}])
def test_few_or_large_copies_or_those_that_do_not_wait_are_no_waits(changed: dict[str, float]) -> None:
    assert KIND not in looks(**changed).kinds()  # type: ignore[arg-type]


def test_work_of_a_millisecond_after_each_wait_is_what_costs() -> None:
    """Decoding a batch, say: without the waits it would still have to be done."""
    assert turns(host_ms=1300, per_step=6, gap_ms=1250).kinds() == ["data-starvation"]
    assert KIND in turns(host_ms=1300, per_step=6, gap_ms=1100).kinds()
