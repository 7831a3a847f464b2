"""The verdict as the difference of two ledgers: what always holds, whatever happened to the job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero.correlate.account import Accounts
from ingero.correlate.loss import Lost
from ingero.detectors.bound import UNNAMED, Setting, name_of
from ingero.model.finding import Finding
from tests import contradictions
from tests.facts import HOG, JOB, Story, job

USUAL, SLOW, SLICES = range(4), range(4, 9), 9
# Extra time of a slow step, and what it should be called.
EXTRA = {
    "host_cpu": "data-starvation",
    "disk_wait": "disk-wait",
    "memory_wait": "memory-pressure",
    "runqueue": "cpu-contention",
    "net_wait": "slow-peer",
    "lock_wait": "slowdown",
    "sleep": "slowdown",
    "unexplained": "slowdown",
}


def slower(bucket: str, fall: float, more: str = "", share: float = 0.0) -> Story:
    """Steps as usual for eight seconds, then fewer: the extra time is in one bucket, or in two."""
    story = job(slices=SLICES, when=USUAL)
    lost = 2000 * fall
    extra = {bucket: lost * (1 - share)}
    if more:
        extra[more] = extra.get(more, 0.0) + lost * share
    usual = {"cuda_cpu": 60.0 * (1 - fall), "host_cpu": 100.0 * (1 - fall)}
    spent = {name: usual.get(name, 0.0) + extra.get(name, 0.0) for name in {*usual, *extra}}
    job(spent, {"host_cpu": 20.0}, steps=round(200 * (1 - fall)), story=story, when=SLOW)
    if bucket == "runqueue":
        story.process(HOG, "hog").culprit(HOG, "hog", extra["runqueue"], when=SLOW)
    return story.paced()


def slowest(story: Story) -> list[Finding]:
    """Findings over the slow time."""
    begin = story.facts.at_ns(SLOW[0])
    return [each for each in story.findings() if each.last_ns > begin + 2_000_000_000]


@given(st.sampled_from(sorted(EXTRA)), st.floats(0.2, 0.8))
@settings(max_examples=60, deadline=None)
def test_a_pace_that_falls_is_always_told_and_by_its_name(bucket: str, fall: float) -> None:
    found = slowest(slower(bucket, fall))
    assert [each.kind for each in found][:1] == [EXTRA[bucket]]
    assert abs((found[0].effect.wall_share or 0) - fall) < 0.15  # made-up facts know whole slices only


@given(st.floats(0.2, 0.8))
@settings(max_examples=20, deadline=None)
def test_more_work_for_a_busy_card_is_no_trouble(fall: float) -> None:
    assert not slowest(slower("gpu_wait", fall))


def test_a_card_that_stays_busy_gives_the_lie_to_nothing_but_idleness() -> None:
    """More work a step: the card is as busy as before, and says so."""
    story = slower("gpu_wait", 0.5)
    story.looked(gpu_share=0.97)
    assert not slowest(story)
    (bound,) = story.diagnose().bound
    assert (bound.by, bound.gpu_busy_share) == ("gpu", 0.97)
    assert bound.steps_per_s is not None
    assert bound.usual_steps_per_s is not None
    assert bound.steps_per_s < 0.6 * bound.usual_steps_per_s


@given(st.sampled_from(sorted(EXTRA)), st.sampled_from(sorted(EXTRA)), st.floats(0.2, 0.8), st.floats(0, 0.5))
@settings(max_examples=60, deadline=None)
def test_what_is_told_does_not_contradict_itself(bucket: str, more: str, fall: float, share: float) -> None:
    for each in slower(bucket, fall, more, share).findings():
        assert not list(contradictions.in_numbers(each))
        for cause in each.causes:
            assert sum(one.ns for one in cause.who) <= 1.01 * max(cause.ns, 1)


@given(st.sampled_from(sorted(EXTRA)), st.floats(0.2, 0.8))
@settings(max_examples=20, deadline=None)
def test_the_rows_of_an_account_are_all_of_the_time(bucket: str, fall: float) -> None:
    timeline = slower(bucket, fall).timeline()
    pace = timeline.jobs[0].pace
    assert pace is not None
    (slow,) = pace.slow
    spans = [pace.usual.spans, slow.spans]
    for account, number in zip(
        Accounts(timeline.facts, timeline.family, spans).of(JOB, JOB), range(2), strict=True
    ):
        over = timeline.facts.over(spans)
        mine = over.threads[(over.threads["slice"] == number) & (over.threads["tid"] == JOB)]
        assert abs(account.wall_ns - int(mine["ns"].sum())) <= 100


def test_the_end_of_a_process_is_no_trouble() -> None:
    story = job(slices=SLICES, when=range(7))
    story.thread(JOB, "python3", {"host_cpu": 1900.0}, {"host_cpu": 1900.0}, feeder=True, when=range(7, 9))
    story.calls("gc_collect", 3, 1800, when=range(7, 9))
    story.process(JOB, "python3", end_ns=story.facts.at_ns(8))
    assert not story.paced().findings()


def test_a_hundred_waits_a_step_do_not_hide_that_there_are_fewer_steps() -> None:
    story = job(slices=SLICES, when=USUAL)
    job({"host_cpu": 1200.0}, steps=100, story=story, when=SLOW)
    story.calls("cuMemcpyDtoH_v2", 20_000, 900, when=SLOW, size=8, split={"gpu_wait": 500})
    (bound,) = story.paced().diagnose().bound
    assert bound.usual_steps_per_s is not None
    assert bound.steps_per_s is not None
    assert 0.4 < bound.steps_per_s / bound.usual_steps_per_s < 0.6


def test_a_healthy_job_has_its_limit_and_no_finding() -> None:
    diagnosis = job().looked(gpu_share=0.97).paced().diagnose()
    assert [each.by for each in diagnosis.bound] == ["gpu"]
    assert not diagnosis.findings


def test_who_waits_longer_for_a_core_than_for_the_gpu_is_not_bound_by_the_gpu() -> None:
    """Without the card's own word: a loop that waits in every step keeps waiting for the GPU, too."""
    story = job({"runqueue": 1100.0, "host_cpu": 300.0}).culprit(HOG, "stress", 1100)
    (bound,) = story.paced().diagnose().bound
    assert bound.by == "runqueue"
    assert bound.who[0].pid == HOG
    (bound,) = job({"host_cpu": 1400.0}).paced().diagnose().bound
    assert bound.by == "gpu"


def test_a_step_with_more_host_work_that_a_busy_card_hides_is_no_trouble() -> None:
    story = slower("host_cpu", 0.5).looked(gpu_share=0.97)
    assert not slowest(story)


def test_one_short_capture_does_not_hide_what_launching_costs() -> None:
    story = job({"host_cpu": 1500.0, "cuda_cpu": 300.0}).looked(gpu_share=0.1)
    story.sampled("cuLaunchKernel model.py:7", 80).calls("cudaStreamEndCapture", 1, 0.2, when=range(1, 2))
    assert story.paced().kinds()


def test_two_slow_times_are_judged_each_by_itself() -> None:
    """An evaluation of a busy card, longer than the fault after it."""
    story = job(slices=16, when=range(4))
    job({}, steps=80, story=story, when=range(4, 9))
    job(story=story, when=range(9, 12))
    job({"disk_wait": 1000.0, "host_cpu": 50.0}, steps=20, story=story, when=range(12, 16))
    found = story.paced().findings()
    assert [each.kind for each in found] == ["disk-wait"]


def test_what_limits_a_job_now_is_of_the_end() -> None:
    story = job(slices=16, when=range(4))
    job({"disk_wait": 1000.0, "host_cpu": 50.0}, steps=100, story=story, when=range(4, 8))
    job(story=story, when=range(8, 16))
    (bound,) = story.paced().diagnose().bound
    assert (bound.by, bound.usual_steps_per_s) == ("gpu", None)


def test_a_job_that_sleeps_longer_than_it_waits_is_not_limited_by_the_gpu() -> None:
    """Of a card that does not tell; where it waits longer, the GPU worked meanwhile."""
    for asleep_ms, by in ((1600.0, "sleep"), (500.0, "gpu")):
        story = job({"sleep": asleep_ms, "gpu_wait": 1900.0 - asleep_ms}, {"sleep": asleep_ms}, slices=8)
        (bound,) = story.paced().diagnose().bound
        assert bound.by == by


def test_waits_that_copies_to_the_gpu_bring_along_are_copying() -> None:
    """Each copy from pageable memory is waited for; reading values back is another matter."""
    for sends, kind in (("cuMemcpyHtoDAsync_v2", "copy-bound"), ("cuMemcpyDtoH_v2", "sync-heavy")):
        story = job(slices=SLICES, when=USUAL)
        job({"gpu_wait": 1000.0, "cuda_cpu": 300.0}, steps=100, story=story, when=SLOW)
        story.calls("cudaStreamSynchronize", 50_000, 900, when=SLOW, split={"gpu_wait": 900})
        story.calls(sends, 50_000, 200, when=SLOW, size=64)
        story.looked(gpu_share=0.9, when=USUAL).looked(gpu_share=0.3, when=SLOW)
        assert [each.kind for each in slowest(story.paced())][:1] == [kind]


def test_making_graphs_in_every_step_is_told_however_often_they_are_launched() -> None:
    story = job(slices=SLICES, when=USUAL)
    job({"cuda_cpu": 900.0}, steps=100, story=story, when=SLOW)
    story.calls("cudaGraphInstantiate", 200, 300, when=SLOW, split={"cuda_cpu": 300})
    story.calls("cuLaunchKernel", 9000, 500, when=SLOW, split={"cuda_cpu": 500})
    story.calls("cudaGraphLaunch", 3200, 20, when=SLOW, split={"cuda_cpu": 20})
    (found, *_) = slowest(story.paced())
    assert found.kind == "graph-trouble"


def test_what_is_left_of_a_fall_that_is_mostly_named_counts_as_lost_with_it() -> None:
    """And stands among the causes, so that they sum to all of it."""
    (found, *_) = slowest(slower("host_cpu", 0.5, "lock_wait", 0.08))
    assert found.kind == "data-starvation"
    assert found.gain is not None
    assert found.gain.ns == found.effect.excess_ns
    assert 0.04 < 1 - found.explained_share < 0.1
    assert [each.bucket for each in found.causes][-1] == "unexplained"
    assert abs(sum(each.share for each in found.causes) - 1) < 0.01


def test_time_in_calls_of_no_kind_is_not_taken_for_the_programs_own_work() -> None:
    timeline = job().timeline()
    setting = Setting(timeline, timeline.jobs[0], False, False, 0, 1)
    row = Lost("cuda_cpu", 10, JOB, JOB, "python3")
    assert name_of(row, setting) == UNNAMED
    assert name_of(replace(row, bucket="host_cpu"), setting) == "data-starvation"


def test_what_a_program_does_after_its_last_step_is_no_trouble_however_long_it_takes() -> None:
    """A short training, then minutes of writing down what came of it."""
    story = job(slices=30, when=range(3))
    rest = range(3, 30)
    story.thread(JOB, "python3", {"host_cpu": 1990.0}, {"host_cpu": 1990.0}, feeder=True, when=rest)
    story.calls("cuMemHostAlloc", 1, 0.1, when=rest)
    story.process(JOB, "python3", end_ns=story.facts.at_ns(29))
    assert not story.looked(gpu_share=0.02, when=rest).paced().findings()


def test_stalls_cannot_have_cost_more_than_the_steps_grew() -> None:
    """A wait of 400 ms in every 450 is how the job is made: of the time, a quarter became slower."""
    story = slower("disk_wait", 0.25)
    for row in story.rows["operations"]:
        row["recorded"] = row["count"] // 3
    story.facts.marks = lambda pid, op: np.zeros((0, 2), np.int64)
    starts = range(story.facts.at_ns(SLOW[0]), story.facts.at_ns(SLICES), 450_000_000)
    stalls = np.array([(at, 400_000_000) for at in starts], np.int64)
    story.facts.stalls = lambda tid, least_ns: stalls
    assert any(len(each.spikes) for each in story.timeline().jobs)
    assert story.kinds() == ["disk-wait"]
