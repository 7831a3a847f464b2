"""CUDA API errors: faults are told, answers and other kinds' codes are not."""

from __future__ import annotations

import pytest

from ingero.detectors import cuda_error
from ingero.model.facts import ErrorFact
from ingero.model.finding import Severity
from tests.facts import JOB, SECOND, Story, job

KIND = "cuda-error"


def failing(*codes: int, op: str = "cudaLaunchKernel", story: Story | None = None) -> Story:
    story = story or job()
    story.facts.errors = [
        ErrorFact(JOB, JOB, op, code, 3, (n + 1) * SECOND, (n + 2) * SECOND, f"node:{n}")
        for n, code in enumerate(codes)
    ]
    return story


@pytest.mark.parametrize("code", sorted(cuda_error.FATAL))
def test_an_error_that_loses_the_context_is_critical(code: int) -> None:
    (finding,) = failing(code).findings()
    assert (finding.kind, finding.severity) == (KIND, Severity.CRITICAL)
    assert f"({code})" in finding.title
    assert finding.evidence[0].event_ids == ["node:0"]
    assert "3 times" in finding.evidence[0].text
    assert any("compute-sanitizer" in fix.text for fix in finding.fix)


@pytest.mark.parametrize("code", [1, 9, 98, 400, 999])
def test_an_error_after_which_the_job_goes_on_is_medium(code: int) -> None:
    (finding,) = failing(code).findings()
    assert (finding.kind, finding.severity) == (KIND, Severity.MEDIUM)


def test_the_fatal_one_of_several_is_the_headline() -> None:
    (finding,) = failing(1, 700).findings()
    assert finding.severity is Severity.CRITICAL
    assert "illegal memory access" in finding.title
    assert (finding.first_ns, finding.last_ns) == (SECOND, 3 * SECOND)


@pytest.mark.parametrize("code", sorted(cuda_error.ANSWERS))
def test_answers_that_programs_ask_for_are_no_errors(code: int) -> None:
    assert failing(code).kinds() == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [(2, "cuda-oom"), (35, "version-mismatch"), (209, "version-mismatch"), (900, "graph-trouble")],
)
def test_codes_with_a_kind_of_their_own_are_left_to_it(code: int, kind: str) -> None:
    story = job()
    story.rows["operations"] = [row for row in story.rows["operations"] if row["op"] != 1]
    assert failing(code, story=story).kinds() == [kind]


def test_what_is_not_found_is_an_answer_to_who_asks_and_an_error_to_who_needs_it() -> None:
    assert failing(500, op="cuModuleGetFunction").kinds() == []
    assert failing(500, op="cudaLaunchKernel").kinds() == [KIND]


def test_numbers_of_nccl_mean_something_else() -> None:
    (finding,) = failing(2, op="ncclAllReduce").findings()
    assert (finding.kind, finding.severity) == (KIND, Severity.MEDIUM)


def test_errors_of_a_process_that_feeds_nothing_are_told_too() -> None:
    story = job()
    story.facts.errors = [ErrorFact(77, 77, "cudaSetDevice", 101, 1, 0, 0, "node:1")]
    (finding,) = story.findings()
    assert finding.victim.pid == 77


def test_a_healthy_run_is_quiet() -> None:
    assert failing().kinds() == []


def test_without_calls_it_says_so() -> None:
    assert failing(700).abstains(KIND, "calls")
