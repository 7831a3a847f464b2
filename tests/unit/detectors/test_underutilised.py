"""A card with too little to do, and those that idle because something is wrong."""

from __future__ import annotations

from ingero.model.finding import Severity
from tests.facts import JOB, Story, job

KIND = "underutilised"
SLICES = 8


def sleepy(sleep_ms: float = 1700, busy: float = 0.1, slices: int = SLICES, **more: float) -> Story:
    story = job({"sleep": sleep_ms}, {"sleep": sleep_ms}, slices=slices, steps=4)
    return story.on_card(JOB).looked(gpu_share=busy, **more)


def test_a_job_that_sleeps_most_of_the_time_leaves_its_card_idle() -> None:
    (finding,) = sleepy().findings()
    assert (finding.kind, finding.severity) == (KIND, Severity.LOW)
    assert "90 %" in finding.title
    assert "busy 10 %" in finding.evidence[0].text


def test_a_server_that_nobody_asks_leaves_its_card_idle() -> None:
    story = job({"net_wait": 1700}, {"net_wait": 1700}, slices=SLICES, steps=4)
    story.process(JOB, "serve", listens=True).on_card(JOB).looked(gpu_share=0.05)
    assert KIND in story.kinds()


def test_a_busy_card_has_enough_to_do() -> None:
    assert KIND not in sleepy(busy=0.6).kinds()


def test_a_job_that_sleeps_little_is_none_of_it() -> None:
    assert KIND not in sleepy(sleep_ms=600, busy=0.2).kinds()


def test_a_job_kept_by_something_else_is_told_about_that() -> None:
    story = job({"disk_wait": 1700}, {"disk_wait": 1700}, slices=SLICES).on_card(JOB).looked(gpu_share=0.05)
    assert KIND not in story.kinds()


def test_a_card_that_somebody_else_keeps_busy_is_not_idle() -> None:
    assert KIND not in sleepy(busy=0.9).on_card(500, sm=0.85, name="other").kinds()


def test_a_short_pause_is_none_of_it() -> None:
    assert KIND not in sleepy(slices=3).kinds()


def test_a_healthy_job_is_quiet() -> None:
    assert job(slices=SLICES).on_card(JOB).looked().kinds() == []


def test_without_counters_it_is_not_watched() -> None:
    assert sleepy().abstains(KIND, "gpu")


def test_utilisation_that_was_not_told_is_not_taken_for_zero() -> None:
    assert KIND not in sleepy(busy=float("nan")).kinds()
