"""Memory pressure: reclaim, and the reads it causes."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.facts import JOB, SEVERITIES, WORKER, Story, job

KIND = "memory-pressure"


def squeezed(ms: float) -> Story:
    lost = {"memory_wait": ms}
    return job(lost, lost, slices=12)


def test_reclaim_while_the_gpu_has_nothing_is_found() -> None:
    (finding,) = squeezed(600).findings()
    assert finding.kind == KIND
    assert finding.causes[0].bucket == "memory_wait"
    assert finding.effect.wall_share == pytest.approx(0.3, abs=0.001)
    assert finding.effect.excess_ns == 12 * 600_000_000


@pytest.mark.parametrize(("ms", "severity"), SEVERITIES)
def test_severity_follows_the_share_of_time_lost(ms: float, severity: Severity | None) -> None:
    assert squeezed(ms).severity(KIND) is severity


def test_all_the_time_waited_can_be_won() -> None:
    (finding,) = squeezed(600).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_reads_of_pages_just_dropped_belong_to_it() -> None:
    lost = {"memory_wait": 300.0, "disk_wait": 500.0}
    (finding,) = job(lost, lost).findings()
    assert finding.kind == KIND
    assert {cause.bucket for cause in finding.causes} == {"memory_wait", "disk_wait", "unexplained"}
    assert finding.effect.wall_share == pytest.approx(0.4, abs=0.001)


def test_much_reading_with_a_little_reclaim_is_the_disk() -> None:
    lost = {"memory_wait": 70.0, "disk_wait": 800.0}
    story = job(lost, lost, slices=12)
    assert story.kinds() == ["disk-wait", KIND]
    assert story.severity(KIND) is Severity.LOW


def test_the_worker_that_is_squeezed_is_named() -> None:
    waits = {"peer_wait": 1000.0}
    story = job(waits, waits).process(WORKER, "loader", parent=JOB)
    story.thread(WORKER, "loader", {}, rest="memory_wait").waker(WORKER, "loader", "peer_wait", 1000)
    (finding,) = story.findings()
    assert finding.kind == KIND
    assert f"loader (pid {WORKER})" in finding.title


def test_reclaim_that_the_gpu_hides_costs_nothing() -> None:
    assert job({"memory_wait": 600.0}).kinds() == []


@pytest.mark.parametrize("source", ["calls", "sched", "memory"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert squeezed(600).abstains(KIND, source)
