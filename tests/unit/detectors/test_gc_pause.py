"""Garbage collection: the collector's own calls, as far as the GPU did not hide them."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from ingero.model.layout import SampleFlag
from tests.facts import JOB, SEVERITIES, Story, job

KIND = "gc-pause"


def collecting(ms: float, gap_ms: float | None = None) -> Story:
    gap = ms if gap_ms is None else gap_ms
    story = job({"host_cpu": 100 + ms}, {"host_cpu": gap}, slices=12)
    return story.calls("gc_collect", 20, ms, split={"host_cpu": ms})


def test_collections_between_steps_are_found_and_counted() -> None:
    (finding,) = collecting(600).findings()
    assert finding.kind == KIND
    assert "30 %" in finding.title
    assert "240 collections" in finding.causes[0].evidence[0].text
    assert any("gc.freeze()" in (fix.code or "") for fix in finding.fix)


@pytest.mark.parametrize(("ms", "severity"), SEVERITIES)
def test_severity_follows_the_share_of_time_lost(ms: float, severity: Severity | None) -> None:
    assert collecting(ms).severity(KIND) is severity


def test_all_the_pauses_can_be_won() -> None:
    (finding,) = collecting(600).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_work_of_the_program_itself_is_not_the_collectors() -> None:
    story = job({"host_cpu": 1200.0}, {"host_cpu": 1000.0}).calls("gc_collect", 5, 10)
    assert story.kinds() == ["data-starvation"]


def test_the_collectors_time_is_not_taken_for_preparing_data() -> None:
    assert collecting(1000).kinds() == [KIND]


def test_collections_while_the_gpu_works_cost_nothing() -> None:
    assert collecting(400, gap_ms=10).kinds() == []


def test_a_healthy_run_that_collects_now_and_then_is_quiet() -> None:
    assert collecting(10).kinds() == []


@pytest.mark.parametrize("source", ["calls", "sched", "gc"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert collecting(600).abstains(KIND, source)


def sampled(collecting_ms: float, computing_ms: float = 0, blind: bool = True) -> Story:
    """An interpreter without the collector's symbol: only samples see it at work."""
    both = collecting_ms + computing_ms
    story = job({"host_cpu": 100 + both}, {"host_cpu": both}, slices=12)
    if blind:
        story.facts.blind = [(JOB, "gc", "the file has no symbol of its collector")]
    story.sampled("step train.py:20", round(collecting_ms * 49 / 1000), flags=SampleFlag.SAMPLE_COLLECTING)
    return story.sampled("load train.py:30", round(computing_ms * 49 / 1000))


def test_a_collector_without_a_symbol_shows_in_samples() -> None:
    story = sampled(600)
    assert story.kinds() == [KIND]
    assert "samples" in story.findings()[0].causes[0].evidence[0].text
    assert story.line(KIND) == "step train.py:20"


def test_samples_of_the_program_itself_are_not_the_collectors() -> None:
    assert sampled(0, 900).kinds() == ["data-starvation"]
    assert sampled(20, 900).kinds() == ["data-starvation"]


def test_samples_do_not_count_what_the_probe_counts() -> None:
    """Where the collector is probed its calls are the truth."""
    assert KIND not in sampled(600, blind=False).kinds()
