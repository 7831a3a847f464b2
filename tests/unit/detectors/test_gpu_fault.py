"""GPU faults: the driver's Xid reports."""

from __future__ import annotations

from typing import Any

import pytest

from ingero.model.facts import Incident
from ingero.model.finding import Severity
from ingero.model.gpu_facts import CardTrouble
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
    assert advice in f"{finding.fix[0].text} {finding.fix[0].command}"


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


def test_a_fault_of_the_card_comes_before_one_of_the_program() -> None:
    (finding,) = faults(31, 79).findings()
    assert finding.title.startswith("GPU fault Xid 79")
    assert "dcgmi" in (finding.fix[0].command or "")


def damaged(gpu_id: int = 0, **what: Any) -> Story:
    told = {"ecc_uncorrected": 0, "remap_failed": False, "lost": False} | what
    story = job().on_card(JOB).looked().looked(1)
    story.facts.cards.trouble = [CardTrouble(gpu_id, first_ns=SECOND, last_ns=3 * SECOND, **told)]
    return story


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"lost": True}, "GPU 0 does not answer any more"),
        ({"ecc_uncorrected": 2}, "GPU 0 has 2 new uncorrected memory errors"),
        ({"remap_failed": True}, "GPU 0 could not replace a row of its memory"),
    ],
)
def test_what_the_card_s_own_counters_tell_is_a_fault(what: dict[str, Any], words: str) -> None:
    (finding,) = damaged(**what).findings()
    assert (finding.kind, finding.severity, finding.title) == ("gpu-fault", Severity.CRITICAL, words)
    assert (finding.victim.pid, finding.first_ns) == (JOB, SECOND)


def test_damage_of_another_card_has_no_victim_among_the_jobs() -> None:
    (finding,) = damaged(1, lost=True).findings()
    assert (finding.victim.pid, finding.victim.comm) == (0, "GPU")


def test_either_source_is_enough_and_without_both_it_is_not_watched() -> None:
    story = damaged(lost=True)
    story.facts.absent = {"xid": "no tracepoint"}
    assert [each.kind for each in story.findings()] == ["gpu-fault"]
    assert "gpu-fault, in part" in {each.what for each in story.diagnose().not_watched}
    story.facts.absent = {"xid": "no tracepoint", "gpu": "no driver"}
    assert "gpu-fault" in {each.what for each in story.diagnose().not_watched}
