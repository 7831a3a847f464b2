"""CPU throttling: a quota stops the job, and nobody is blamed for it."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.facts import HOG, JOB, SEVERITIES, WORKER, Story, job

KIND = "cpu-throttled"


def stopped(ms: float, slices: int = 12) -> Story:
    lost = {"runqueue": ms}
    return job(lost, lost, slices=slices, throttled_ns=ms).culprit(0, "[cpu quota]", ms, throttled=True)


def test_a_quota_that_stops_the_feeding_thread_is_found_and_nobody_is_blamed() -> None:
    (finding,) = stopped(600).findings()
    assert finding.kind == KIND
    assert finding.causes[0].bucket == "runqueue"
    assert finding.causes[0].who == []
    assert finding.effect.wall_share == pytest.approx(0.3, abs=0.001)
    assert "30 %" in finding.title
    assert f"/proc/{JOB}/cgroup" in (finding.fix[0].command or "")


@pytest.mark.parametrize(("ms", "severity"), SEVERITIES)
def test_severity_follows_the_share_of_time_lost(ms: float, severity: Severity | None) -> None:
    assert stopped(ms).severity(KIND) is severity


def test_all_the_time_stopped_can_be_won() -> None:
    (finding,) = stopped(600).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_a_core_that_another_process_has_is_not_a_quota() -> None:
    lost = {"runqueue": 600.0}
    assert job(lost, lost).culprit(HOG, "stress", 600).kinds() == ["cpu-contention"]


def test_half_quota_half_neighbour_are_two_findings_of_half_the_time() -> None:
    lost = {"runqueue": 600.0}
    story = job(lost, lost, throttled_ns=300).culprit(0, "[cpu quota]", 300, throttled=True)
    found = {each.kind: each for each in story.culprit(HOG, "stress", 300).findings()}
    assert set(found) == {KIND, "cpu-contention"}
    for finding in found.values():
        assert finding.effect.wall_share == pytest.approx(0.15, abs=0.001)


def test_a_quota_that_the_gpu_hides_costs_nothing() -> None:
    assert job({"runqueue": 600.0}, throttled_ns=600).kinds() == []


def test_the_quota_of_the_worker_we_wait_for_is_followed() -> None:
    waits = {"peer_wait": 1000.0}
    story = job(waits, waits).process(WORKER, "loader", parent=JOB)
    story.thread(WORKER, "loader", {"runqueue": 1600.0}, rest="host_cpu", throttled_ns=1600)
    finding = story.waker(WORKER, "loader", "peer_wait", 1000).findings()[0]
    assert finding.kind == KIND
    assert finding.causes[0].via == ["loader"]


def test_a_healthy_run_is_quiet() -> None:
    assert job().kinds() == []


@pytest.mark.parametrize("source", ["calls", "sched"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert stopped(600).abstains(KIND, source)
