"""A report is judged by what was done to the job, on reports made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.truth.drawn import Case, Draw
from benchmarks.truth.judge import INCOMPLETE, RIGHT, SILENT, WRONG, about, blames_the_line, judge, judge_twin
from ingero.model.finding import Cause, Effect, Finding, Gain, Severity, Victim, Who

JOB, HOG, OTHER = 100, 200, 300


def case(*expected: str, **more: Any) -> Case:
    return Case("some-case", expected, lambda random: Draw({}), **more)


def finding(
    kind: str, severity: str = "HIGH", *who: Who, gain: float | None = None, victim: int = JOB
) -> Finding:
    return Finding(
        "f1", kind, Severity(severity), "title", 1, 2, 0.9, Victim(victim, victim, "python"),
        Effect("step", 10, 20, 10, 0.5), [Cause("runqueue", 10, 1.0, list(who))], 1.0,
        gain=None if gain is None else Gain(10, gain),
    )  # fmt: skip


def report(*findings: Finding) -> dict[str, Any]:
    """As `explain --json` prints it."""
    told: dict[str, Any] = {"findings": msgspec.to_builtins(list(findings))}
    return told


def outcome(asked: Case, *findings: Finding) -> str:
    return judge(asked, 1, report(*findings)).outcome


def test_the_expected_kind_first_is_right_whatever_follows() -> None:
    assert outcome(case("disk-wait"), finding("disk-wait"), finding("gc-pause")) == RIGHT


def test_the_expected_kind_second_is_wrong() -> None:
    assert outcome(case("disk-wait"), finding("gc-pause"), finding("disk-wait")) == WRONG


def test_an_answer_that_is_as_good_is_right_and_no_extra() -> None:
    asked = case("memory-pressure", instead=frozenset({"disk-wait"}))
    assert outcome(asked, finding("disk-wait")) == RIGHT
    assert outcome(asked, finding("memory-pressure")) == RIGHT
    assert outcome(asked, finding("gc-pause"), finding("disk-wait")) == WRONG
    assert judge(asked, 1, report(finding("memory-pressure"), finding("disk-wait"))).extra == ()


def test_no_finding_is_not_right() -> None:
    assert outcome(case("disk-wait")) == SILENT


@pytest.mark.parametrize("kinds", [("disk-wait", "gc-pause"), ("gc-pause", "disk-wait")])
def test_two_faults_may_come_in_any_order(kinds: tuple[str, str]) -> None:
    assert outcome(case("disk-wait", "gc-pause"), *map(finding, kinds)) == RIGHT


def test_one_of_two_faults_is_incomplete() -> None:
    assert outcome(case("disk-wait", "gc-pause"), finding("gc-pause")) == INCOMPLETE


@pytest.mark.parametrize(("severity", "expected"), [("LOW", RIGHT), ("MEDIUM", WRONG), ("CRITICAL", WRONG)])
def test_a_healthy_run_may_have_nothing_above_low(severity: str, expected: str) -> None:
    assert outcome(case(), finding("disk-wait", severity)) == expected
    assert outcome(case()) == RIGHT


def test_what_is_neither_expected_nor_admitted_is_listed() -> None:
    asked = case("disk-wait", also=frozenset({"data-starvation"}))
    told = [finding(kind) for kind in ("disk-wait", "data-starvation", "gc-pause")]
    judged = judge(asked, 1, report(*told, finding("sync-heavy", "LOW")))
    assert judged.extra == (("gc-pause", "HIGH"),)


@pytest.mark.parametrize(
    ("who", "named"),
    [
        (Who(HOG, "xz", 5), True),
        (Who(OTHER, "xz", 5), False),  # another process of that name
        (Who(None, "xz", 5), True),
        (Who(None, "gzip", 5), False),
    ],
)
def test_the_culprit_is_named_by_its_pid_or_where_there_is_none_by_its_name(who: Who, named: bool) -> None:
    told = report(finding("cpu-contention", "HIGH", who))
    assert judge(case("cpu-contention", blames=True), 1, told, [(HOG, "xz")]).culprit is named


def test_the_victims_own_name_names_nobody() -> None:
    told = report(finding("slow-peer", "HIGH", Who(None, "python", 5)))
    assert judge(case("slow-peer", blames=True), 1, told, [(HOG, "python")]).culprit is False


def test_a_culprit_named_by_a_wrong_finding_does_not_count() -> None:
    told = report(finding("gc-pause", "HIGH", Who(HOG, "xz", 5)))
    assert judge(case("cpu-contention", blames=True), 1, told, [(HOG, "xz")]).culprit is False


def test_silence_names_nobody_and_without_a_culprit_nothing_is_asked() -> None:
    assert judge(case("cpu-contention", blames=True), 1, report(), [(HOG, "xz")]).culprit is False
    assert judge(case("gc-pause"), 1, report(finding("gc-pause"))).culprit is None


def test_a_killed_process_is_named_as_the_victim() -> None:
    told = report(finding("oom-kill", "HIGH", victim=HOG))
    assert judge(case("oom-kill", blames=True, timed=False), 1, told, [(HOG, "python")]).culprit is True


@pytest.mark.parametrize(("gain", "agrees"), [(0.50, True), (0.41, True), (0.39, False), (0.61, False)])
def test_the_promised_step_time_agrees_within_a_fifth_of_the_twins(gain: float, agrees: bool) -> None:
    told = report(finding("gc-pause", gain=gain))
    assert judge(case("gc-pause"), 1, told, faulty_ms=20.0, twin_ms=10.0).gain is agrees


def test_no_gain_is_compared_without_a_promise_a_twin_or_a_step_time() -> None:
    asked = case("gc-pause")
    assert judge(asked, 1, report(finding("gc-pause")), faulty_ms=20.0, twin_ms=10.0).gain is None
    assert judge(asked, 1, report(finding("gc-pause", gain=0.5)), faulty_ms=20.0).gain is None
    assert judge(asked, 1, report(finding("gc-pause", gain=0.5)), twin_ms=10.0).gain is None


def test_a_state_and_two_faults_at_once_promise_no_comparable_step_time() -> None:
    told = report(finding("oom-kill", gain=0.5))
    assert judge(case("oom-kill", timed=False), 1, told, faulty_ms=20.0, twin_ms=10.0).gain is None
    both = report(finding("gc-pause", gain=0.2), finding("disk-wait"))
    assert judge(case("gc-pause", "disk-wait"), 1, both, faulty_ms=20.0, twin_ms=10.0).gain is None


def test_the_twin_of_a_faulty_run_is_a_healthy_one() -> None:
    assert judge_twin(case("gc-pause"), 1, report(finding("gc-pause"))).outcome == WRONG
    assert judge_twin(case("gc-pause"), 1, report()).outcome == RIGHT


def test_troubles_of_other_jobs_on_the_machine_are_theirs() -> None:
    told = report(finding("gc-pause", victim=OTHER), finding("gpu-shared"))
    assert judge(case("gpu-shared"), 1, about(told, [JOB])).outcome == RIGHT
    assert judge(case("gpu-shared"), 1, told).outcome == WRONG


@pytest.mark.parametrize(("line", "right"), [(2, True), (1, False), (3, False)])
def test_the_line_to_blame_is_marked(tmp_path: Path, line: int, right: bool) -> None:
    source = tmp_path / "job.py"
    source.write_text("one()\nkeep(malloc())  # here\nfree()\n")
    finding = {"kind": "gpu-memory-leak", "source": {"file": str(source), "line": line, "function": "f"}}
    assert blames_the_line(finding) is right
    assert not blames_the_line({"kind": "gpu-memory-leak", "source": None})
