"""GPU faults: the driver's Xid reports."""

from __future__ import annotations

import pytest

from ingero.model.facts import Incident
from ingero.model.finding import Severity
from tests.facts import JOB, SECOND, Story, job

KIND = "gpu-fault"


def faults(*codes: int | None, pid: int | None = JOB) -> Story:
    story = job()
    story.facts.xids = [
        Incident((n + 1) * SECOND, pid, "python3" if pid else None, f"node:{n}", code, "0000:01:00.0 message")
        for n, code in enumerate(codes)
    ]
    return story


@pytest.mark.parametrize(("code", "advice"), [(79, "dcgmi"), (48, "dcgmi"), (31, "compute-sanitizer")])
def test_a_fault_is_critical_and_the_advice_fits_its_kind(code: int, advice: str) -> None:
    (finding,) = faults(code).findings()
    assert (finding.kind, finding.severity, finding.victim.pid) == (KIND, Severity.CRITICAL, JOB)
    assert f"Xid {code}" in finding.title
    assert finding.evidence[0].event_ids == ["node:0"]
    assert advice in (finding.fix[0].command or "")


def test_the_same_fault_again_is_one_finding_over_its_time() -> None:
    (finding,) = faults(79, 79, 79).findings()
    assert (finding.first_ns, finding.last_ns) == (SECOND, 3 * SECOND)


def test_a_number_nobody_knows_is_still_a_fault() -> None:
    (finding,) = faults(9999).findings()
    assert "Xid 9999" in finding.title


def test_a_fault_of_no_process_is_the_cards() -> None:
    (finding,) = faults(79, pid=None).findings()
    assert finding.victim.comm == "GPU"


def test_two_kinds_of_fault_of_one_process_are_both_told() -> None:
    story = faults(31, 79)
    said = " ".join(each.title for each in story.findings())
    assert "Xid 31" in said
    assert "Xid 79" in said


def test_an_error_of_a_call_is_no_fault() -> None:
    assert faults().kinds() == []


def test_without_its_source_it_says_so() -> None:
    assert faults(79).abstains(KIND, "xid")


def test_a_fault_of_the_card_comes_before_one_of_the_program() -> None:
    (finding,) = faults(31, 79).findings()
    assert finding.title.startswith("GPU fault Xid 79")
    assert "dcgmi" in (finding.fix[0].command or "")
