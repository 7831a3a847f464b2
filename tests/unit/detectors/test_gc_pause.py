"""Garbage collection: the collector's own calls, as far as the GPU did not hide them."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.facts import SEVERITIES, Story, job

KIND = "gc-pause"


def collecting(ms: float, gap_ms: float | None = None) -> Story:
    gap = ms if gap_ms is None else gap_ms
    story = job({"host_cpu": 100 + ms}, {"host_cpu": gap}, slices=12)
    return story.calls("gc_collect", 20, ms, split={"host_cpu": ms})


def test_collections_between_steps_are_found_and_counted() -> None:
    (finding,) = collecting(600).findings()
    assert finding.kind == KIND
    assert "30%" in finding.title
    assert "240 collections" in finding.causes[0].evidence[0].text
    assert any("gc.freeze()" in (fix.command or "") for fix in finding.fix)


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
