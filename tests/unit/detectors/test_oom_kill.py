"""OOM kill: of the job or of what it started, and of nobody else."""

from __future__ import annotations

import pytest

from ingero.model.facts import Incident
from ingero.model.finding import Severity
from tests.facts import HOG, JOB, SECOND, WORKER, Story, job

KIND = "oom-kill"


def killed(pid: int, comm: str = "loader") -> Story:
    story = job().process(WORKER, "loader", parent=JOB).process(HOG, "postgres")
    story.facts.ooms = [Incident(5 * SECOND, pid, comm, "node:17")]
    return story


@pytest.mark.parametrize("pid", [JOB, WORKER])
def test_a_kill_of_the_job_or_its_worker_is_critical_and_points_at_its_event(pid: int) -> None:
    (finding,) = killed(pid).findings()
    assert (finding.kind, finding.severity, finding.victim.pid) == (KIND, Severity.CRITICAL, pid)
    assert finding.first_ns == finding.last_ns == 5 * SECOND
    assert finding.evidence[0].event_ids == ["node:17"]
    assert finding.causes == []


def test_a_workers_kill_says_whose_worker_it_was() -> None:
    (finding,) = killed(WORKER).findings()
    assert f"started by python3, pid {JOB}" in finding.title


def test_a_kill_of_a_process_that_has_nothing_to_do_with_the_job_is_not_ours() -> None:
    assert killed(HOG, "postgres").kinds() == []


def test_a_kill_whose_victim_is_unknown_is_not_guessed() -> None:
    story = job()
    story.facts.ooms = [Incident(5 * SECOND, None, None, "node:17")]
    assert story.kinds() == []


def test_being_short_of_gpu_memory_is_another_matter() -> None:
    assert job().kinds() == []


def test_without_its_source_it_says_so() -> None:
    assert killed(WORKER).abstains(KIND, "memory")
