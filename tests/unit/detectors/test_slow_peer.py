"""Slow peer: answers of a process that is not part of the job."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.facts import HOG, JOB, SEVERITIES, WORKER, Story, job

KIND = "slow-peer"


def asking(ms: float, rest: str = "host_cpu") -> Story:
    waits = {"peer_wait": ms}
    story = job(waits, waits, slices=12).process(HOG, "redis").thread(HOG, "redis", {}, rest=rest)
    return story.waker(HOG, "redis", "peer_wait", ms)


def test_a_process_that_answers_slowly_is_named() -> None:
    (finding,) = asking(600).findings()
    assert finding.kind == KIND
    assert f"redis (pid {HOG})" in finding.title
    assert [who.pid for who in finding.causes[0].who] == [HOG]
    assert str(HOG) in (finding.fix[0].command or "")


@pytest.mark.parametrize(("ms", "severity"), SEVERITIES)
def test_severity_follows_the_share_of_time_lost(ms: float, severity: Severity | None) -> None:
    assert asking(ms).severity(KIND) is severity


def test_all_the_time_waited_can_be_won() -> None:
    (finding,) = asking(600).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_a_peer_on_another_machine_is_told_without_a_name() -> None:
    lost = {"net_wait": 600.0}
    (finding,) = job(lost, lost).findings()
    assert finding.kind == KIND
    assert finding.causes[0].who == []
    assert "over the network" in finding.title


def test_a_peer_nobody_traces_is_named_and_we_are_less_sure() -> None:
    waits = {"peer_wait": 600.0}
    story = job(waits, waits).process(HOG, "redis").waker(HOG, "redis", "peer_wait", 600)
    (finding,) = story.findings()
    assert finding.kind == KIND
    assert f"redis (pid {HOG})" in finding.title
    assert finding.confidence < asking(600).findings()[0].confidence


def test_a_server_that_waits_for_requests_is_quiet() -> None:
    lost = {"net_wait": 1500.0}
    assert job(lost, lost).process(JOB, "server", listens=True).kinds() == []
    assert asking(1500).process(JOB, "server", listens=True).kinds() == []


def test_a_rank_that_listens_for_its_peers_is_no_server() -> None:
    assert asking(1500).process(JOB, "python3", listens=True, rank=0).kinds() == [KIND]


def test_a_parent_that_hands_out_work_is_no_peer() -> None:
    assert asking(600).process(JOB, "python3", parent=HOG).kinds() == []


def test_a_front_end_that_waits_for_clients_before_it_hands_out_work_is_no_peer() -> None:
    assert asking(1500, rest="net_wait").process(JOB, "engine", parent=HOG).kinds() == []


def test_a_worker_that_waits_for_another_machine_leads_to_a_peer() -> None:
    assert asking(600, rest="net_wait").process(HOG, "loader", parent=JOB).kinds() == [KIND]


def test_the_jobs_own_worker_is_no_peer() -> None:
    waits = {"peer_wait": 600.0}
    story = job(waits, waits).process(WORKER, "loader", parent=JOB).thread(WORKER, "loader", {}, rest="sleep")
    assert story.waker(WORKER, "loader", "peer_wait", 600).kinds() == ["data-starvation"]


def test_a_peer_that_waits_for_the_disk_is_the_disks_fault() -> None:
    assert asking(600, rest="disk_wait").kinds() == ["disk-wait"]


def test_waits_that_the_gpu_hides_cost_nothing() -> None:
    assert job({"net_wait": 600.0}).kinds() == []


@pytest.mark.parametrize("source", ["calls", "sched", "wakers"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert asking(600).abstains(KIND, source)
