"""What nobody can see yet is said to be not watched, with the reason, and is never found."""

from __future__ import annotations

import pytest

from tests.facts import HOG, JOB, job

NOT_YET = (
    "managed-thrash", "kv-cache-pressure", "head-of-line",
)  # fmt: skip


@pytest.mark.parametrize("kind", NOT_YET)
def test_every_answer_says_that_it_is_not_watched_and_why(kind: str) -> None:
    (why,) = [each.why for each in job().diagnose().not_watched if each.what == kind]
    assert why


def test_everything_else_is_watched_where_all_was_recorded() -> None:
    assert {each.what for each in job().diagnose().not_watched} == set(NOT_YET)


def test_an_abstention_names_the_source_that_is_missing() -> None:
    lost = {"runqueue": 600.0}
    story = job(lost, lost).culprit(HOG, "stress", 600)
    story.facts.absent = {"sched": "the kernel refused it"}
    reasons = {each.what: each.why for each in story.diagnose().not_watched}
    assert reasons["cpu-contention"] == "sched is not recorded: the kernel refused it"


def test_what_is_missing_of_this_job_comes_first_and_what_nobody_watches_last() -> None:
    story = job()
    story.facts.absent = {"pods": "the kubelet was not asked", "gpu": "no NVML here"}
    story.facts.blind = [(JOB, "gil", "free-threaded interpreter")]
    order = [each.what for each in story.diagnose().not_watched]
    assert order[0] == f"gil-contention of python3 (pid {JOB})"
    assert {each.partition(",")[0] for each in order[1:5]} == {
        "gpu-throttled",
        "gpu-fault",
        "underutilised",
        "gpu-idle",
    }
    assert order[-1] == "pod-restart"
