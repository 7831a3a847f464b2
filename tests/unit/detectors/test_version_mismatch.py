"""Driver and runtime do not fit."""

from __future__ import annotations

import pytest

from ingero.detectors import cuda_error
from ingero.model.facts import ErrorFact
from ingero.model.finding import Severity
from tests.facts import JOB, SECOND, Story, job

KIND = "version-mismatch"


def refused(code: int) -> Story:
    """The first call fails, and nothing is ever launched."""
    story = job()
    story.rows["operations"] = [row for row in story.rows["operations"] if row["op"] != 1]
    story.facts.errors = [ErrorFact(JOB, JOB, "cudaGetDeviceCount", code, 1, SECOND, SECOND, "node:1")]
    return story


@pytest.mark.parametrize("code", sorted(cuda_error.MISMATCH))
def test_every_code_of_a_mismatch_is_critical_and_named(code: int) -> None:
    (finding,) = refused(code).findings()
    assert (finding.kind, finding.severity) == (KIND, Severity.CRITICAL)
    assert finding.title.endswith(f"(cudaGetDeviceCount returned {code})")
    assert "error " not in finding.title  # it has a name, not only a number
    assert finding.evidence[0].event_ids == ["node:1"]


@pytest.mark.parametrize("code", [1, 700])
def test_other_errors_are_not_a_mismatch(code: int) -> None:
    assert refused(code).kinds() == ["cuda-error"]


def test_a_healthy_run_is_quiet() -> None:
    assert job().kinds() == []


def test_without_calls_it_says_so() -> None:
    assert refused(35).abstains(KIND, "calls")


@pytest.mark.parametrize("code", sorted(cuda_error.MISMATCH))
def test_code_for_another_gpu_that_a_library_tried_first_is_no_mismatch(code: int) -> None:
    """The job goes on launching 5000 kernels a second."""
    story = job()
    story.facts.errors = [ErrorFact(JOB, JOB, "cuModuleLoadData", code, 1, SECOND, SECOND, "node:1")]
    assert story.kinds() == []


def test_launches_of_another_process_prove_nothing() -> None:
    story = job(pid=400, story=refused(35))
    story.facts.gpus = {JOB: {0}, 400: {1}}
    assert story.kinds() == [KIND]
