"""CUDA out of memory: status 2 of CUDA calls."""

from __future__ import annotations

from ingero.model.facts import ErrorFact
from ingero.model.finding import Severity
from tests.facts import HOG, JOB, SECOND, Story, job

KIND = "cuda-oom"


def short(*ops: str, code: int = 2, count: int = 3) -> Story:
    story = job()
    story.facts.errors = [
        ErrorFact(JOB, JOB, op, code, count, (n + 1) * SECOND, (n + 1) * SECOND, f"node:{n}")
        for n, op in enumerate(ops)
    ]
    return story


def test_a_failed_allocation_is_told_with_its_calls() -> None:
    (finding,) = short("cudaMalloc").findings()
    assert (finding.kind, finding.severity, finding.victim.pid) == (KIND, Severity.HIGH, JOB)
    assert "cudaMalloc ran out of GPU memory 3 times" in finding.title
    assert finding.evidence[0].event_ids == ["node:0"]
    assert finding.causes == []


def test_runtime_and_driver_telling_of_the_same_failure_are_one() -> None:
    (finding,) = short("cudaMalloc", "cuMemAlloc_v2").findings()
    assert "3 times" in finding.title
    assert len(finding.evidence) == 2


def test_two_processes_are_two_findings() -> None:
    story = short("cudaMalloc")
    story.facts.errors.append(ErrorFact(HOG, HOG, "cudaMalloc", 2, 1, SECOND, SECOND, "node:9"))
    assert {each.victim.pid for each in story.findings()} == {JOB, HOG}


def test_status_2_of_nccl_is_not_out_of_memory() -> None:
    assert short("ncclAllReduce").kinds() == ["cuda-error"]


def test_other_errors_are_not_out_of_memory() -> None:
    assert short("cudaMalloc", code=1).kinds() == ["cuda-error"]


def test_a_healthy_run_is_quiet() -> None:
    assert short().kinds() == []


def test_without_calls_it_says_so() -> None:
    assert short("cudaMalloc").abstains(KIND, "calls")
