"""From evidence to findings: episodes, what is usual, gain, confidence, nothing divided by nothing."""

from __future__ import annotations

import numpy as np
import pytest

from ingero.model.facts import LossFact
from ingero.model.finding import Finding, Severity
from tests.facts import HOG, JOB, MS, SECOND, Story, job


def disturbed(pattern: dict[int, float], slices: int = 30, steps: int = 200) -> Story:
    """A healthy job that loses so many milliseconds to the disk in these slices."""
    story = Story(slices)
    for number in range(slices):
        one = range(number, number + 1)
        lost = {"disk_wait": pattern[number]} if pattern.get(number) else {}
        job(lost, lost or None, story=story, when=one, steps=steps if not lost else steps // 2)
    return story


def episodes(story: Story) -> list[tuple[int, int]]:
    """As slices, from and to."""
    return [
        (first // (2 * SECOND), last // (2 * SECOND))
        for finding in story.findings()
        for first, last in finding.episodes
    ]


def test_a_row_of_disturbed_slices_is_one_episode() -> None:
    assert episodes(disturbed(dict.fromkeys(range(10, 15), 800))) == [(10, 15)]


def test_a_hole_of_one_slice_does_not_end_an_episode() -> None:
    assert episodes(disturbed(dict.fromkeys((10, 11, 13, 14), 800))) == [(10, 15)]


def test_losses_on_both_sides_of_a_hole_add_up_to_one_episode() -> None:
    assert episodes(disturbed({10: 300, 12: 300})) == [(10, 13)]
    assert episodes(disturbed({10: 300, 13: 300})) == []


def test_episodes_near_each_other_are_merged_and_distant_ones_are_not() -> None:
    near = disturbed(dict.fromkeys((5, 6, 10, 11), 800))
    assert episodes(near) == [(5, 12)]
    far = disturbed(dict.fromkeys((5, 6, 20, 21), 800))
    assert episodes(far) == [(5, 7), (20, 22)]


def test_a_distant_pair_is_still_one_finding_that_spans_both() -> None:
    (finding,) = disturbed(dict.fromkeys((5, 6, 20, 21), 800)).findings()
    assert (finding.first_ns, finding.last_ns) == (10 * SECOND, 44 * SECOND)
    assert finding.effect.excess_ns == pytest.approx(4 * 800 * MS, rel=0.3)


@pytest.mark.parametrize(("ms", "said"), [(490, False), (510, True)])
def test_less_than_half_a_second_is_not_worth_saying(ms: float, said: bool) -> None:
    assert bool(disturbed({10: ms / 2, 11: ms / 2}).findings()) is said


@pytest.mark.parametrize(("ms", "said"), [(1750, False), (1850, True)])
def test_of_a_long_recording_less_than_three_thousandths_are_not_worth_saying(ms: float, said: bool) -> None:
    """20 minutes: 3.6 s."""
    assert bool(disturbed({10: ms, 11: ms}, slices=600).findings()) is said


@pytest.mark.parametrize(("slices", "said"), [(5, False), (6, True)])
def test_ten_seconds_are_worth_saying_however_long_the_recording(slices: int, said: bool) -> None:
    """1.8 s of each slice, of more than two hours."""
    lost = {"disk_wait": 1800.0}
    story = job(when=range(10), slices=4000)
    job(lost, lost, story=story, when=range(10, 10 + slices), steps=20)
    job(story=story, when=range(10 + slices, 4000))
    assert bool(story.findings()) is said


def test_a_single_slice_is_a_pause_and_no_episode() -> None:
    assert disturbed({10: 1900}).kinds() == []
    assert episodes(disturbed({10: 950, 11: 950})) == [(10, 12)]


@pytest.mark.parametrize(("slices", "said"), [(1, True), (2, True), (3, False)])
def test_of_a_job_seen_no_longer_a_single_slice_is_enough(slices: int, said: bool) -> None:
    assert bool(disturbed({0: 1000}, slices).findings()) is said


def test_what_comes_again_and_again_is_one_episode_however_far_apart() -> None:
    assert episodes(disturbed(dict.fromkeys(range(0, 30, 3), 400))) == [(0, 28)]


def test_twice_is_not_again_and_again() -> None:
    assert disturbed({0: 1900, 15: 1900}).kinds() == []
    assert episodes(disturbed({0: 1900, 15: 1900, 29: 1900})) == [(0, 30)]


@pytest.mark.parametrize(("ms", "said"), [(590, False), (610, True)])
def test_losses_far_apart_must_make_up_three_percent_of_the_time_between(ms: float, said: bool) -> None:
    """1.8 s of a minute."""
    assert bool(disturbed(dict.fromkeys((0, 15, 29), ms)).findings()) is said


def test_less_than_three_percent_is_not_worth_saying_however_long() -> None:
    assert disturbed(dict.fromkeys(range(30), 55)).kinds() == []


def one(story: Story) -> Finding:
    (finding,) = story.findings()
    return finding


def test_how_bad_it_is_is_told_of_the_slices_it_fills() -> None:
    """A little before, then a fault that begins and ends amid a slice."""
    losses = {10: 70.0, 11: 80.0, 12: 500.0} | dict.fromkeys(range(13, 20), 1200.0) | {20: 300.0}
    assert one(disturbed(losses)).effect.wall_share == pytest.approx(0.6, abs=0.001)


def test_what_is_usual_is_learnt_from_the_undisturbed_slices() -> None:
    finding = one(disturbed(dict.fromkeys(range(10, 15), 1000)))
    assert finding.effect.usual_ns == 10 * MS
    assert finding.effect.now_ns == 20 * MS


def test_without_undisturbed_slices_what_is_usual_is_unknown() -> None:
    finding = one(disturbed(dict.fromkeys(range(30), 1000)))
    assert finding.effect.usual_ns is None
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.5, abs=0.01)


def test_no_more_is_promised_than_the_iterations_became_longer() -> None:
    """A quarter of the time is lost, but iterations take only an eighth longer than usual."""
    story = Story(30)
    lost = {"disk_wait": 500.0}
    for number in range(30):
        bad = 10 <= number < 20
        job(
            lost if bad else None, lost if bad else None, story=story, steps=175 if bad else 200,
            when=range(number, number + 1),
        )  # fmt: skip
    finding = one(story)
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.125, abs=0.005)


def slower(steps: int, gpu_ms: float) -> Finding:
    """Fewer iterations: a quarter of the time is lost to the disk, the rest of it nobody explains."""
    story = Story(30)
    lost = {"disk_wait": 500.0}
    for number in range(30):
        when = range(number, number + 1)
        if 10 <= number < 20:
            job(lost | {"gpu_wait": gpu_ms}, lost, story=story, steps=steps, when=when, rest="sleep")  # type: ignore[arg-type]
        else:
            job(story=story, when=when)
    return one(story)


@pytest.mark.parametrize(("steps", "gpu_ms"), [(100, 920.0), (120, 1100.0), (60, 550.0), (100, 1340.0)])
def test_no_more_is_promised_than_was_lost(steps: int, gpu_ms: float) -> None:
    """However much longer the iterations became for reasons nobody knows."""
    finding = slower(steps, gpu_ms)
    assert finding.gain is not None
    assert finding.gain.share == finding.effect.wall_share == pytest.approx(0.25, abs=0.01)


def test_what_nothing_disturbed_is_not_usual_where_it_is_slower() -> None:
    """A slow phase that no finding covers says nothing about what a faster one lost."""
    story = Story(30)
    lost = {"disk_wait": 500.0}
    for number in range(30):
        bad = 10 <= number < 20
        job(
            lost if bad else None, lost if bad else None, story=story, steps=200 if bad else 100,
            when=range(number, number + 1),
        )  # fmt: skip
    finding = one(story)
    assert finding.effect.usual_ns is None
    assert finding.gain is not None
    assert finding.gain.share == finding.effect.wall_share


def test_one_undisturbed_slice_of_many_iterations_tells_what_is_usual() -> None:
    """In a recording of some seconds there is no second one."""
    losses = dict.fromkeys(range(1, 5), 1000.0)
    assert one(disturbed(losses, slices=5)).effect.usual_ns == 10 * MS
    assert one(disturbed(losses, slices=5, steps=40)).effect.usual_ns is None


def test_what_began_amid_a_slice_is_measured_by_those_it_filled() -> None:
    losses = {10: 900.0} | dict.fromkeys(range(11, 15), 1200.0)
    assert one(disturbed(losses)).effect.wall_share == pytest.approx(0.6, abs=0.001)
    from_the_start = {0: 900.0} | dict.fromkeys(range(1, 30), 1200.0)
    assert one(disturbed(from_the_start)).effect.wall_share == pytest.approx(0.595, abs=0.001)


def test_what_nobody_explains_of_a_slowdown_is_said_to_be_unexplained() -> None:
    """Iterations take four times as long; the disk explains a third of that."""
    story = Story(30)
    lost = {"disk_wait": 500.0}
    for number in range(30):
        bad = 10 <= number < 20
        job(
            lost if bad else None, lost if bad else None, story=story, steps=50 if bad else 200,
            when=range(number, number + 1),
        )  # fmt: skip
    finding = one(story)
    assert finding.explained_share == pytest.approx(1 / 3, abs=0.01)
    assert finding.causes[-1].bucket == "unexplained"
    assert sum(cause.share for cause in finding.causes) == pytest.approx(1, abs=0.001)
    assert finding.confidence < one(disturbed(dict.fromkeys(range(10, 20), 1000))).confidence


def test_a_slowdown_that_nothing_proves_is_reported_as_that() -> None:
    """It sleeps for most of the time, and waits for the GPU no longer than before."""
    story = job(when=range(20), slices=30)
    job({"sleep": 1300.0}, story=story, when=range(20, 30), steps=60)
    diagnosis = story.diagnose()
    assert diagnosis.findings == []
    (slow,) = diagnosis.unexplained
    assert slow.victim.pid == JOB
    assert (slow.first_ns, slow.last_ns) == (40 * SECOND, 60 * SECOND)
    assert slow.excess_ns == 14 * SECOND


def test_a_steady_run_has_nothing_unexplained() -> None:
    assert job(slices=30).diagnose().unexplained == []


def test_losses_and_unknown_culprits_make_it_less_sure() -> None:
    lost = {"runqueue": 600.0}
    sure = one(job(lost, lost).culprit(HOG, "stress", 600)).confidence
    vague = one(job(lost, lost).culprit(HOG, "stress", 100)).confidence
    assert vague < sure
    story = job(lost, lost).culprit(HOG, "stress", 600)
    story.facts.losses = [LossFact("ring_thread", 1, 0, story.facts.to_ns)]
    assert one(story).confidence < sure


def test_losses_of_mere_detail_do_not_matter() -> None:
    lost = {"runqueue": 600.0}
    story = job(lost, lost).culprit(HOG, "stress", 600)
    sure = one(story).confidence
    story.facts.losses = [LossFact("ring_call", 1_000_000, 0, story.facts.to_ns)]
    assert one(story).confidence == sure


def test_the_worst_comes_first() -> None:
    lost = {"disk_wait": 300.0, "runqueue": 700.0}
    found = job(lost, lost, slices=12).culprit(HOG, "stress", 700).findings()
    assert [each.kind for each in found] == ["cpu-contention", "disk-wait"]
    assert [each.severity for each in found] == [Severity.HIGH, Severity.MEDIUM]


def test_slices_of_no_length_break_nothing() -> None:
    """Far enough from the first call that they are no start-up."""
    story = Story(40).process(JOB, "python3")
    for number in range(40):
        story._add("threads", slice=number, pid=JOB, tid=JOB, comm=1, feeder=True)
    ends = np.cumsum(([10 * MS] * 99 + [500 * MS]) * 60)
    story.facts.marks = lambda pid, op: np.stack([ends, np.zeros_like(ends)], axis=1)
    story.calls("cudaStreamSynchronize", 200, 0).calls("cudaGraphInstantiate", 200, 5)
    story.calls("cudaGraphLaunch", 200, 5).calls("cuMemcpyHtoDAsync_v2", 200, 0, size=1 << 20)
    story.calls("cudaMalloc", 200, 5).calls("cudaFree", 200, 5).calls("gc_collect", 1, 0)
    story.calls("cuLaunchKernel", 10_000, 0)
    assert all(each.effect.excess_ns is None for each in story.findings())


def test_operations_nobody_named_break_nothing() -> None:
    story = job()
    story.facts.ops = {}
    assert story.kinds() == []


def test_calls_of_a_process_whose_threads_were_not_seen_break_nothing() -> None:
    story = job()
    story.rows["threads"] = []
    assert story.kinds() == []


def test_nothing_recorded_is_nothing_found() -> None:
    assert Story(6).kinds() == []


def test_huge_counts_are_only_numbers() -> None:
    story = job(slices=12).calls("cuLaunchKernel", 10**12, 50)
    story.calls("cuMemcpyHtoDAsync_v2", 10**9, 10**6, size=4096)
    shares = [each.effect.wall_share for each in story.findings()]
    assert shares
    assert all(share is not None and 0 < share <= 1 for share in shares)


def test_calls_of_several_threads_do_not_lose_more_than_there_was() -> None:
    story = job({"cuda_cpu": 1800.0}, {"cuda_cpu": 1500.0}, slices=12)
    story.calls("cuMemcpyHtoDAsync_v2", 20_000, 12_000, size=4096)  # six threads, two seconds each
    finding = next(each for each in story.findings() if each.kind == "copy-bound")
    assert finding.gain is not None
    assert finding.gain.share <= 1
    assert finding.effect.wall_share == 1
    assert sum(cause.share for cause in finding.causes) == pytest.approx(1, abs=0.001)


def test_one_second_of_checkpoint_in_an_hour_is_not_worth_saying() -> None:
    lost = {"disk_wait": 1100.0}
    story = job(when=range(900), slices=1800)
    job(lost, lost, story=story, when=range(900, 901), steps=90)
    job(story=story, when=range(901, 1800))
    assert story.kinds() == []


def test_an_evaluation_phase_is_not_an_unexplained_slowdown() -> None:
    """Fewer and larger iterations: the GPU works longer on each."""
    story = job(when=range(30), slices=60)
    job(story=story, when=range(30, 45), steps=60)
    job(story=story, when=range(45, 60))
    assert story.diagnose().unexplained == []


def test_of_a_slowdown_longer_waits_for_the_gpu_are_no_riddle() -> None:
    """Iterations of 10 ms take 33, waits for the GPU of 9.2 ms became 17.3: the rest is unexplained."""
    story = job(when=range(20), slices=30)
    job({"sleep": 800.0}, story=story, when=range(20, 30), steps=60)
    (slow,) = story.diagnose().unexplained
    assert slow.excess_ns == pytest.approx((14 - (1.04 - 60 * 0.0092) * 10) * SECOND, abs=MS)


def test_a_job_of_six_seconds_per_step_is_not_slower_than_usual() -> None:
    """4 s of launching, then 2 s of waiting for the GPU: every third slice has few launches, by nature."""
    story = Story(60).process(JOB, "python3").thread(JOB, "python3", {"cuda_cpu": 60.0}, feeder=True)
    for step in range(0, 60, 3):
        story.calls("cuLaunchKernel", 4000, 40, when=range(step, step + 2))
        story.calls("cuLaunchKernel", 200, 2, when=range(step + 2, step + 3))
        story.calls("cudaStreamSynchronize", 1, 1900, when=range(step + 2, step + 3))
    diagnosis = story.diagnose()
    assert (diagnosis.findings, diagnosis.unexplained) == ([], [])
