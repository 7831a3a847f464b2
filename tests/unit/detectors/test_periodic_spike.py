"""Periodic spikes: regular, rare, and explained by nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from ingero.correlate.steps import idle_ns, spikes_in
from ingero.model.finding import Severity
from tests.facts import BY_NAME, MS, SECOND, Story, job

KIND = "periodic-spike"
LAUNCH = BY_NAME["cuLaunchKernel"]
STEP_MS = 10


def steps(durations_ms: Iterable[float], start_ns: int = 0) -> np.ndarray:
    """Marks of a loop: a call of a microsecond at the end of each iteration."""
    ends = start_ns + np.cumsum([int(ms * MS) for ms in durations_ms])
    return np.stack([ends - 1000, np.full(len(ends), 1000)], axis=1)


def spiking(spike_ms: float, every: int = 100, slices: int = 12) -> Story:
    idle = {"sleep": 1400.0}  # the GPU has nothing to do meanwhile
    story = job(idle, idle, slices=slices)
    lengths: list[float] = []
    while sum(lengths) < slices * 2000:
        lengths += [STEP_MS] * (every - 1) + [STEP_MS + spike_ms]
    story.facts.marks = lambda pid, op: steps(lengths)
    return story


def test_regular_spikes_are_found_with_their_period() -> None:
    (finding,) = spiking(500).findings()
    assert finding.kind == KIND
    assert "1.5 s apart" in finding.title
    assert "500 ms" in finding.title
    assert [cause.bucket for cause in finding.causes] == ["sleep", "unexplained"]


# Every 100th iteration of 10 ms: 1000 ms in which the spike adds its own.
@pytest.mark.parametrize(
    ("spike_ms", "severity"),
    [(25, None), (60, Severity.LOW), (200, Severity.MEDIUM), (500, Severity.HIGH), (1200, Severity.CRITICAL)],
)
def test_severity_follows_the_share_of_time_lost(spike_ms: float, severity: Severity | None) -> None:
    assert spiking(spike_ms, slices=30).severity(KIND) is severity


def test_what_the_spikes_add_can_be_won() -> None:
    (finding,) = spiking(500, slices=30).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(1 / 3, abs=0.03)


def cut_at(to_s: float) -> Story:
    """Iterations of 10 ms, and 600 ms after every 1.4 s of them; the recording ends."""
    idle = {"sleep": 700.0}
    story = job(idle, idle, slices=3)
    marks = steps(([STEP_MS] * 140 + [600]) * 3)
    story.facts.to_ns = int(to_s * SECOND)
    story.facts.marks = lambda pid, op: marks[marks[:, 0] < story.facts.to_ns]
    return story


@pytest.mark.parametrize(
    ("idle_ms", "in_part", "whole"), [(550, True, False), (400, False, False), (800, True, True)]
)
def test_where_launches_are_watched_in_part_half_of_the_stall_must_be_seen(
    idle_ms: float, in_part: bool, whole: bool
) -> None:
    """Spikes add some 940 ms to a slice; so much of that the GPU is known to have had nothing to do."""
    for error, said in ((None, whole), (500, in_part)):
        story = spiking(900)
        known = job({"sleep": idle_ms}, {"sleep": idle_ms}, slices=12)
        known.calls("cuLaunchKernel", 5000, 50, caller=2, error=error)
        known.facts.marks = story.facts.marks
        assert (KIND in known.kinds()) is said


def test_a_spike_under_way_at_the_end_is_one_of_them() -> None:
    (finding,) = cut_at(5.9).findings()
    assert (finding.kind, "3 stalls" in finding.title) == (KIND, True)


def test_of_a_spike_under_way_what_it_has_come_to_is_idle_too() -> None:
    """Spikes of 600 ms that compute; the third has come to 500."""
    marks, to_ns = cut_at(5.9).facts.marks(0, 0), int(5.9 * SECOND)
    none = np.zeros((0, 2), np.int64)
    spikes = spikes_in(marks, 0, to_ns, lambda: none)
    assert len(spikes) == 3
    assert idle_ns(spikes, marks, none[:, 0]) == pytest.approx((600 + 600 + 500 - 6 * STEP_MS) * MS, rel=0.01)
    amid = np.array([int(5.65 * SECOND)], np.int64)
    assert idle_ns(spikes, marks, amid) == pytest.approx((600 + 600 - 4 * STEP_MS) * MS, rel=0.01)


def test_two_spikes_prove_no_period() -> None:
    assert cut_at(5.3).kinds() == []


def test_a_job_that_rests_at_the_end_still_has_its_spikes() -> None:
    story = spiking(500)
    story.facts.to_ns += 5 * SECOND
    assert story.kinds() == [KIND]


def test_steps_that_are_all_long_are_a_slower_job_and_no_spikes() -> None:
    """However many usual ones there were before."""
    none = np.zeros((0, 2), np.int64)
    slower = steps([STEP_MS] * 400 + [500] * 8)
    assert not len(spikes_in(slower, 0, 8 * SECOND, lambda: none))
    rare = steps([STEP_MS] * 400 + ([500] + [STEP_MS] * 40) * 4)
    assert len(spikes_in(rare, 0, 7 * SECOND, lambda: none)) == 4


def test_a_hiccup_among_regular_spikes_is_none_of_them() -> None:
    """As when the trace began: a long iteration, far shorter than the spikes."""
    story = spiking(500)
    marks = story.facts.marks(0, 0)
    marks[30:, 0] += 40 * MS
    story.facts.marks = lambda pid, op: marks
    assert story.kinds() == [KIND]


def test_irregular_spikes_are_something_else() -> None:
    story = job(slices=12)
    lengths = [STEP_MS] * 2000
    for at in (50, 80, 700, 720, 1500, 1900):
        lengths[at] = 500
    story.facts.marks = lambda pid, op: steps(lengths)
    assert story.kinds() == []


def test_steps_that_differ_all_the_time_are_usual() -> None:
    story = job(slices=12)
    story.facts.marks = lambda pid, op: steps([10, 10, 40] * 400)
    assert story.kinds() == []


def test_spikes_that_another_finding_explains_are_left_to_it() -> None:
    story = spiking(500)
    lost = {"disk_wait": 700.0}
    explained = job(lost, lost, slices=12)
    explained.facts.marks = story.facts.marks
    assert explained.kinds() == ["disk-wait"]


def test_spikes_of_the_start_are_the_start() -> None:
    story = spiking(500).calls("cuModuleLoadData", 10, 500, when=range(12))
    assert KIND not in story.kinds()


def test_a_loop_without_recorded_marks_is_quiet() -> None:
    assert job().kinds() == []


def test_clock_steps_between_marks_do_not_break_it() -> None:
    story = job(slices=12)
    back = np.concatenate([steps([10] * 100, 20 * SECOND), steps([10] * 100)])
    story.facts.marks = lambda pid, op: back
    assert story.kinds() == []


def test_without_calls_it_says_so() -> None:
    assert spiking(500).abstains(KIND, "calls")


@pytest.mark.parametrize(("every", "said"), [(12, False), (13, True)])
def test_what_comes_in_more_than_eight_percent_of_the_iterations_is_the_programs_way(
    every: int, said: bool
) -> None:
    assert spiking(60, every=every).kinds() == ([KIND] if said else [])


def test_gradient_accumulation_is_no_periodic_stall() -> None:
    """Every 8th micro-step contains the optimiser."""
    story = job(slices=12, steps=80)
    story.facts.marks = lambda pid, op: steps(([20] * 7 + [60]) * 120)
    assert story.kinds() == []


@pytest.mark.parametrize(("ms", "said"), [(190, True), (210, False)])
def test_spikes_of_which_waits_explain_a_part_are_left_to_who_waits(ms: float, said: bool) -> None:
    """16 spikes of 500 ms are 8 s: 30 % of them are 200 ms in each of 12 slices."""
    lost = {"disk_wait": ms, "sleep": 1000.0}
    story = job(lost, lost, slices=12)
    story.facts.marks = spiking(500).facts.marks
    assert (KIND in story.kinds()) is said


def test_a_wait_that_is_rare_stays_so_in_a_slice_that_it_fills() -> None:
    """A program that is waited for every two seconds; the recording ends within the third time."""
    waits, long = {"peer_wait": 500.0}, {"peer_wait": 1900.0}
    story = job({}, {}, slices=5, when=range(2), steps=200)
    job(waits, waits, story=story, when=range(2, 4), steps=150)
    job(long, long, story=story, when=range(4, 5), steps=8)
    story.waker(300, "sleep", "peer_wait", 500, when=range(2, 4), count=1)
    story.waker(300, "sleep", "peer_wait", 1900, when=range(4, 5), count=1)
    marks = steps([STEP_MS] * 400 + ([500] + [STEP_MS] * 150) * 2)
    story.facts.to_ns = int(marks[-1].sum()) + 1900 * MS
    story.facts.marks = lambda pid, op: marks
    assert KIND in story.kinds()


def polling(waits: Iterable[tuple[float, float]]) -> Story:
    """A job of whose calls too few have a record to tell iterations apart; waits: start and length in ms."""
    idle = {"sleep": 700.0}
    story = job(idle, idle, slices=6)
    for row in story.rows["operations"]:
        row["recorded"] = row["count"] // 3
    story.facts.marks = lambda pid, op: steps([])
    marks = np.array([(start * MS, length * MS) for start, length in waits], np.int64).reshape(-1, 2)
    story.facts.stalls = lambda tid, least_ns: marks[marks[:, 1] >= least_ns]
    return story


def test_regular_long_waits_are_stalls_where_no_call_marks_the_iterations() -> None:
    (finding,) = polling((1000 + 1600 * number, 480) for number in range(6)).findings()
    assert finding.kind == KIND
    assert "6 stalls of 480 ms, 1.6 s apart" in finding.title
    assert "duration >= 480000000" in finding.causes[0].evidence[0].sql


def test_long_waits_at_no_interval_are_no_spikes() -> None:
    starts = (1000, 1900, 4800, 6100, 10000)
    assert KIND not in polling((start, 480) for start in starts).kinds()


def test_waits_amid_which_the_gpu_is_given_work_are_no_stalls() -> None:
    story = polling((1000 + 1600 * number, 480) for number in range(6))
    launches = np.array([(at * MS, 4000) for at in range(0, 12000, 20)], np.int64)
    story.facts.marks = lambda pid, op: launches
    assert KIND not in story.kinds()
