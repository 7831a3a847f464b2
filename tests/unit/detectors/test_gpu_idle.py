"""Idle GPU: the card idles, there is work, and no other kind names most of why."""

from __future__ import annotations

from ingero.model.finding import Severity
from ingero.model.window import Records
from tests.facts import JOB, SECOND, Story, job


def test_an_idle_card_with_work_is_told_from_the_start() -> None:
    story = job({"lock_wait": 1400.0}).looked(gpu_share=0.2).paced()
    assert story.kinds() == ["gpu-idle"]
    assert story.severity("gpu-idle") is Severity.CRITICAL


def test_what_another_kind_names_is_told_by_that_one() -> None:
    assert job({"disk_wait": 1400.0}).looked(gpu_share=0.2).paced().kinds() == ["disk-wait"]


def test_a_program_that_sleeps_on_purpose_wants_nothing() -> None:
    assert "gpu-idle" not in job({"sleep": 1400.0}).looked(gpu_share=0.2).paced().kinds()


def test_a_server_that_waits_to_be_asked_wants_nothing() -> None:
    story = job({"net_wait": 1400.0}).looked(gpu_share=0.2)
    story.process(JOB, "python3", listens=True)
    assert "gpu-idle" not in story.paced().kinds()


def test_a_busy_card_is_no_trouble() -> None:
    assert not job({"lock_wait": 900.0}).looked(gpu_share=0.95).paced().kinds()


def test_without_the_cards_word_nothing_is_concluded() -> None:
    assert "gpu-idle" not in job({"lock_wait": 1400.0}).paced().kinds()


def roughly_counted(story: Story) -> Story:
    """Every second has its calls, and none of them is exact: there is no pace."""
    exact = story.paced().facts.seconds

    def rough(pid: int) -> Records:
        seconds = exact(pid)
        seconds["exact"] = 0
        return seconds

    story.facts.seconds = rough
    return story


def test_who_keeps_no_pace_in_the_first_minute_may_still_be_loading_and_compiling() -> None:
    kinds = []
    for start_ns in (1, -3600 * SECOND):
        story = roughly_counted(job({"lock_wait": 1400.0}, slices=9).looked(gpu_share=0.2))
        kinds.append(story.process(JOB, "python3", start_ns=start_ns).kinds())
    assert kinds == [[], ["gpu-idle"]]
