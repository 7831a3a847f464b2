"""Disk wait: of the job or of the worker it waits for."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.facts import JOB, SEVERITIES, WORKER, Story, job

KIND = "disk-wait"


def reads(ms: float) -> Story:
    lost = {"disk_wait": ms}
    return job(lost, lost, slices=12)


def test_reading_while_the_gpu_has_nothing_is_found() -> None:
    (finding,) = reads(600).findings()
    assert finding.kind == KIND
    assert finding.causes[0].bucket == "disk_wait"
    assert finding.effect.wall_share == pytest.approx(0.3, abs=0.001)
    assert finding.causes[0].evidence
    assert "7.2" in finding.causes[0].evidence[0].text  # seconds in the disk, of twelve slices


@pytest.mark.parametrize(("ms", "severity"), SEVERITIES)
def test_severity_follows_the_share_of_time_lost(ms: float, severity: Severity | None) -> None:
    assert reads(ms).severity(KIND) is severity


def test_all_the_time_waited_can_be_won() -> None:
    (finding,) = reads(600).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_the_disk_of_the_worker_we_wait_for_is_found_with_the_way_to_it() -> None:
    waits = {"peer_wait": 1000.0}
    story = job(waits, waits).process(WORKER, "loader", parent=JOB)
    story.thread(WORKER, "loader", {"host_cpu": 100.0}, rest="disk_wait")
    finding = story.waker(WORKER, "loader", "peer_wait", 1000).findings()[0]
    assert finding.kind == KIND
    assert finding.causes[0].via == ["loader"]
    assert f"loader (pid {WORKER})" in finding.title
    assert f"/proc/{WORKER}/fd" in (finding.fix[0].command or "")


def test_a_checkpoint_is_told_with_its_time() -> None:
    writes, during = {"disk_wait": 1500.0}, range(4, 6)
    story = job(when=range(4), slices=12)
    job(writes, writes, story=story, when=during, steps=50)
    job(story=story, when=range(6, 12))
    (finding,) = story.findings()
    assert (finding.kind, finding.first_ns, finding.last_ns) == (KIND, 8 * 10**9, 12 * 10**9)


def test_reads_that_the_gpu_hides_cost_nothing() -> None:
    assert job({"disk_wait": 600.0}).kinds() == []


def test_pages_that_reclaim_dropped_are_memorys_fault() -> None:
    lost = {"disk_wait": 400.0, "memory_wait": 400.0}
    assert job(lost, lost).kinds() == ["memory-pressure"]


def test_waiting_for_a_lock_is_not_waiting_for_the_disk() -> None:
    lost = {"lock_wait": 600.0}
    assert KIND not in job(lost, lost).kinds()


@pytest.mark.parametrize("source", ["calls", "sched"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert reads(600).abstains(KIND, source)


def test_a_loading_thread_that_slept_when_nobody_waited_for_it_is_not_asleep_when_it_reads() -> None:
    """queue.get() of a batch: 200 ms of waiting, in which the thread read and decoded; then it slept."""
    waits = {"lock_wait": 200.0}
    story = job(waits, waits, slices=12)
    story.thread(JOB, "loader", {"disk_wait": 180.0, "host_cpu": 20.0}, tid=101, rest="sleep")
    (finding,) = story.waker(101, "loader", "lock_wait", 200, by_pid=JOB).findings()
    assert finding.kind == KIND
    assert finding.effect.wall_share == pytest.approx(0.09, abs=0.001)
