"""GIL contention: the interpreter's lock, and no other."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.facts import JOB, SEVERITIES, Story, job

KIND = "gil-contention"
CRUNCHER = 101


def locked(ms: float, gil_ms: float | None = None) -> Story:
    lost = {"lock_wait": ms}
    story = job(lost, lost, slices=12, gil_ns=ms if gil_ms is None else gil_ms)
    return story.thread(JOB, "cruncher", {"host_cpu": 1500.0}, tid=CRUNCHER, rest="lock_wait")


def test_the_thread_that_holds_the_lock_is_named() -> None:
    (finding,) = locked(600).findings()
    assert finding.kind == KIND
    assert finding.causes[0].bucket == "lock_wait"
    assert [(who.pid, who.comm) for who in finding.causes[0].who] == [(CRUNCHER, "cruncher")]
    assert f"cruncher (tid {CRUNCHER})" in finding.title
    assert finding.effect.wall_share == pytest.approx(0.3, abs=0.001)


@pytest.mark.parametrize(("ms", "severity"), SEVERITIES)
def test_severity_follows_the_share_of_time_lost(ms: float, severity: Severity | None) -> None:
    assert locked(ms).severity(KIND) is severity


def test_all_the_time_waited_can_be_won() -> None:
    (finding,) = locked(600).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_another_lock_is_not_the_interpreters() -> None:
    assert KIND not in locked(600, gil_ms=0).kinds()


def test_only_the_part_that_was_the_interpreters_lock_counts() -> None:
    finding = next(each for each in locked(800, gil_ms=400).findings() if each.kind == KIND)
    assert finding.effect.wall_share == pytest.approx(0.2, abs=0.001)


def test_a_queue_between_threads_is_starvation_and_not_the_gil() -> None:
    story = locked(600, gil_ms=0).waker(CRUNCHER, "cruncher", "lock_wait", 600, by_pid=JOB)
    assert story.kinds() == ["data-starvation"]


def test_waits_for_the_lock_that_the_gpu_hides_cost_nothing() -> None:
    story = job({"lock_wait": 600.0}, gil_ns=600)
    story.thread(JOB, "cruncher", {"host_cpu": 1500.0}, tid=CRUNCHER, rest="lock_wait")
    assert story.kinds() == []


@pytest.mark.parametrize("source", ["calls", "sched", "gil"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert locked(600).abstains(KIND, source)
