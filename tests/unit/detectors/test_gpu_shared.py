"""Shared GPU: two processes on one card take turns."""

from __future__ import annotations

import pytest

from ingero.model.facts import Arrival
from ingero.model.finding import Severity
from tests.facts import JOB, MS, Story, job

KIND = "gpu-shared"
OTHER = 400


def sharing(own_ms: float = 1800, other_ms: float = 1800, slices: int = 12) -> Story:
    """Two jobs; each waits so long for the card in a slice."""
    story = job({"host_cpu": 2000 - 60 - own_ms}, slices=slices)
    return job({"host_cpu": 2000 - 60 - other_ms}, pid=OTHER, story=story)


def test_both_are_told_about_each_other() -> None:
    found = sharing().findings()
    assert [each.kind for each in found] == [KIND, KIND]
    blamed = {each.victim.pid: [who.pid for who in each.causes[0].who] for each in found}
    assert blamed == {JOB: [OTHER], OTHER: [JOB]}
    assert found[0].effect.wall_share == pytest.approx(0.45, abs=0.001)


@pytest.mark.parametrize(
    ("other_ms", "severity"),
    [(190, None), (205, Severity.LOW), (400, Severity.MEDIUM), (1200, Severity.HIGH)],
)
def test_severity_follows_the_others_part_of_the_card(other_ms: float, severity: Severity | None) -> None:
    story = sharing(own_ms=1000, other_ms=other_ms)
    mine = [each.severity for each in story.findings() if each.kind == KIND and each.victim.pid == JOB]
    assert mine == ([severity] if severity else [])


def test_the_gain_is_the_others_part() -> None:
    finding = sharing(1200, 1200).findings()[0]
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_processes_on_different_cards_do_not_disturb_each_other() -> None:
    story = sharing()
    story.facts.gpus = {JOB: {0}, OTHER: {1}}
    assert story.kinds() == []


def test_processes_known_to_be_on_the_same_card_do() -> None:
    story = sharing()
    story.facts.gpus = {JOB: {0, 1}, OTHER: {1}}
    assert story.kinds() == [KIND, KIND]


def test_ranks_of_one_communicator_belong_together() -> None:
    story = sharing()
    story.facts.arrivals = [
        Arrival(7, seq, "ncclAllReduce", rank, 2, pid, seq * 10 * MS, 1024)
        for seq in range(4)
        for rank, pid in enumerate((JOB, OTHER))
    ]
    assert KIND not in story.kinds()


def test_jobs_one_after_the_other_do_not_share() -> None:
    story = job(when=range(6), slices=12)
    assert job(pid=OTHER, story=story, when=range(6, 12)).kinds() == []


def test_a_job_alone_is_quiet() -> None:
    assert job().kinds() == []


@pytest.mark.parametrize("source", ["calls", "sched"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert sharing().abstains(KIND, source)


def test_two_that_use_a_part_of_the_card_meet_as_often_as_they_use_it() -> None:
    """Each waits 600 of 2000 ms: half of that is the other's, in the 60 % of the time both use."""
    found = sharing(600, 600).findings()
    assert [each.kind for each in found] == [KIND, KIND]
    assert found[0].effect.wall_share == pytest.approx(0.15 * 0.6, abs=0.001)


def test_two_jobs_that_hardly_use_the_card_do_not_disturb_each_other() -> None:
    assert KIND not in sharing(300, 300).kinds()


@pytest.mark.parametrize(("card", "said"), [(0, True), (1, False)])
def test_a_process_whose_card_is_unknown_is_on_the_first(card: int, said: bool) -> None:
    story = sharing()
    story.facts.gpus = {JOB: {card}}
    assert story.kinds() == ([KIND, KIND] if said else [])


STRANGER = 700


def with_a_stranger(share: float, gpu_id: int = 0) -> Story:
    """One traced job on card 0, and somebody whom only the driver knows."""
    story = job({"host_cpu": 140}, slices=12).looked().on_card(JOB, sm=0.5)
    return story.on_card(STRANGER, gpu_id, share, 4 << 30, name="inference")


def test_a_process_outside_the_trace_is_named_where_the_driver_tells_of_it() -> None:
    (finding,) = with_a_stranger(0.5).findings()
    assert finding.kind == KIND
    assert finding.title == "python3 shares its GPU with inference (pid 700)"
    assert [(who.pid, who.comm) for who in finding.causes[0].who] == [(STRANGER, "inference")]
    assert finding.effect.wall_share == pytest.approx(0.9 * 0.5, abs=0.01)
    assert "gpu_processes" in (finding.causes[0].evidence[0].sql or "")


def test_one_that_only_holds_memory_takes_no_time() -> None:
    assert with_a_stranger(0.0).kinds() == []


def test_one_that_looks_at_the_card_now_and_then_is_not_blamed() -> None:
    assert with_a_stranger(0.04).kinds() == []


def test_one_on_another_card_is_not_blamed() -> None:
    assert with_a_stranger(0.8, gpu_id=1).looked(1).kinds() == []


def test_one_in_another_instance_of_a_divided_card_is_not_blamed() -> None:
    assert with_a_stranger(0.8).card(0, mig=True).kinds() == []


def test_a_helper_of_the_job_itself_is_not_blamed() -> None:
    assert with_a_stranger(0.8).process(STRANGER, "inference", JOB).kinds() == []


def test_a_share_that_the_driver_does_not_tell_is_not_made_up() -> None:
    story = job({"host_cpu": 140}, slices=12).looked().on_card(JOB, sm=0.5).on_card(STRANGER, memory=4 << 30)
    assert story.kinds() == []


def test_the_server_through_which_processes_share_a_card_is_not_blamed() -> None:
    story = job({"host_cpu": 140}, slices=12).looked().on_card(JOB, sm=0.5)
    assert story.on_card(STRANGER, sm=0.9, name="nvidia-cuda-mps").kinds() == []
