"""Slowdown: the pace fell, and no other kind names most of the extra time."""

from __future__ import annotations

from tests.facts import HOG, JOB, job
from tests.unit.detectors.test_verdict import SLOW, USUAL, slower, slowest


def test_it_tells_where_the_extra_time_of_a_step_goes() -> None:
    (found,) = slowest(slower("sleep", 0.5))
    assert found.kind == "slowdown"
    assert found.causes[0].bucket == "sleep"
    assert found.effect.usual_ns == 10_000_000
    assert found.effect.now_ns == 20_000_000


def test_its_line_is_where_the_thread_is_then() -> None:
    story = slower("sleep", 0.5).waited("sleep", "pause train.py:9", 900, when=SLOW)
    assert story.line("slowdown") == "pause train.py:9"


def test_waits_for_a_card_that_says_it_is_idle_are_told() -> None:
    story = slower("gpu_wait", 0.6)
    story.looked(when=USUAL, gpu_share=0.97).looked(when=SLOW, gpu_share=0.35)
    assert [each.kind for each in slowest(story)] == ["slowdown"]


def test_the_neighbour_is_not_blamed_where_a_kind_has_a_name_for_it() -> None:
    kinds = {each.kind for each in slowest(slower("disk_wait", 0.5))}
    assert kinds == {"disk-wait"}


def test_another_job_that_slows_down_is_not_this_one() -> None:
    story = slower("sleep", 0.5)
    job(pid=HOG, story=story)
    story.facts.gpus = {JOB: {0}, HOG: {1}}
    assert {each.victim.pid for each in story.findings()} == {JOB}


def test_a_job_that_keeps_its_pace_is_not_told() -> None:
    assert "slowdown" not in job().paced().kinds()
