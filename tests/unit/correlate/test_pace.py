"""Pace: steps per second from calls that are counted exactly, and when it changed."""

from __future__ import annotations

import numpy as np

from ingero.correlate.pace import Pace, last_step_ns, pace_of
from ingero.model.facts import SECONDS

SECOND = 1_000_000_000
NAMES = {1: "cudaStreamSynchronize", 2: "cuMemcpyDtoHAsync_v2", 3: "cuDeviceGet", 4: "cuLaunchKernel"}
WALLS = {number * SECOND: SECOND for number in range(20)}


def rows(counts: dict[int, list[int]], estimated: tuple[int, ...] = ()) -> np.ndarray:
    made = [
        (number * SECOND, op, count, int(op not in estimated))
        for op, series in counts.items()
        for number, count in enumerate(series)
        if count
    ]
    return np.array(sorted(made), SECONDS)


def pace(counts: dict[int, list[int]], estimated: tuple[int, ...] = (), **more: object) -> Pace | None:
    return pace_of(rows(counts, estimated), NAMES, WALLS, 0, 20 * SECOND, 1, **more)  # type: ignore[arg-type]


def seconds_of(found: Pace) -> list[tuple[int, int]]:
    return [(start // SECOND, end // SECOND) for each in found.slow for start, end in each.spans]


def test_a_steady_job_has_a_usual_pace_and_no_slow_time() -> None:
    found = pace({1: [20, 21] * 10, 2: [20, 20] * 10})
    assert found is not None
    assert not found.slow
    assert abs(found.usual.step_ns - SECOND / 20.5) < SECOND / 200


def test_a_fall_has_its_seconds_and_what_it_cost() -> None:
    found = pace({1: [20] * 10 + [10] * 10, 2: [20] * 10 + [10] * 10})
    assert found is not None
    assert seconds_of(found) == [(10, 19)]
    assert abs(found.excess_ns(found.slow[0]) - 4.5 * SECOND) < SECOND / 10


def test_calls_that_a_trouble_adds_do_not_hide_the_fall() -> None:
    found = pace({1: [20] * 10 + [900] * 10, 2: [20] * 10 + [10] * 10, 3: [400] * 10 + [200] * 10})
    assert found is not None
    (slow,) = found.slow
    assert abs(slow.step_ns / found.usual.step_ns - 2) < 0.1


def test_a_call_that_only_asks_decides() -> None:
    """Two calls a step where there was one, in two of three: the third says how many steps there are."""
    counts = {1: [20] * 10 + [8] * 10, 2: [20] * 10 + [8] * 10, 3: [400] * 10 + [80] * 10}
    found = pace(counts, questions=[3])
    assert found is not None
    (slow,) = found.slow
    assert abs(slow.step_ns / found.usual.step_ns - 5) < 0.2


def test_a_second_that_changes_amid_belongs_to_neither() -> None:
    found = pace({1: [20] * 9 + [15] + [10] * 10})
    assert found is not None
    assert seconds_of(found) == [(10, 19)]
    assert found.usual.last_ns == 9 * SECOND


def test_a_hiccup_of_a_second_is_no_pace() -> None:
    found = pace({1: [200] * 9 + [80] + [200] * 10})
    assert found is not None
    assert not found.slow


def test_a_job_that_recovers_was_slow_in_between() -> None:
    found = pace({1: [200] * 6 + [100] * 6 + [200] * 8})
    assert found is not None
    assert seconds_of(found) == [(6, 12)]


def test_the_start_of_a_young_process_is_no_slowness() -> None:
    counts = {1: [3, 3, 3, 5, 6] + [20] * 15}
    found = pace(counts, young=True)
    assert found is not None
    assert not found.slow
    assert pace(counts) is not None  # one that ran for long was slow then


def test_noise_is_no_change() -> None:
    random = np.random.default_rng(5)
    for _ in range(50):
        found = pace({1: random.normal(60, 6, 20).astype(int).tolist()})
        assert found is not None
        assert not found.slow


def test_estimates_are_no_pace() -> None:
    assert pace({4: [9000] * 10 + [4000] * 10}, estimated=(4,)) is None


def test_the_last_second_of_steps() -> None:
    counts = rows({1: [20] * 14, 4: [9000] * 15})
    assert last_step_ns(counts, WALLS) in (13 * SECOND, 14 * SECOND)


def test_nothing_at_all_has_no_pace() -> None:
    assert pace({}) is None
    assert pace_of(rows({1: [20] * 20}), NAMES, {}, 0, SECOND, 1) is None
    assert last_step_ns(rows({}), WALLS) is None


def test_a_fault_of_seconds_amid_an_hour_stands_out() -> None:
    walls = {number * SECOND: SECOND for number in range(3600)}
    counts = [20, 21] * 1800
    counts[1800:1812] = [8] * 12
    found = pace_of(rows({1: counts, 2: counts}), NAMES, walls, 0, 3600 * SECOND, 1)
    assert found is not None
    assert seconds_of(found) == [(1800, 1812)]


def test_two_troubles_of_different_weight_are_two() -> None:
    found = pace({1: [200] * 6 + [100] * 4 + [200] * 4 + [40] * 6})
    assert found is not None
    assert len(found.slow) == 2


def test_a_single_estimated_second_does_no_harm() -> None:
    counted = rows({1: [20] * 10 + [10] * 10})
    counted["exact"][3] = 0
    found = pace_of(counted, NAMES, WALLS, 0, 20 * SECOND, 1)
    assert found is not None
    assert seconds_of(found) == [(10, 19)]


def test_whoever_asks_by_the_clock_decides_nothing() -> None:
    found = pace({1: [20] * 10 + [8] * 10, 2: [20] * 10 + [8] * 10, 3: [10] * 20}, questions=[3])
    assert found is not None
    assert seconds_of(found) == [(10, 19)]


def said(per_s: list[float], every: int = 1) -> np.ndarray:
    """Labels of a job that makes so many steps in each second, and says every so many of them."""
    at_s = np.cumsum([1 / rate for rate in per_s for _ in range(round(rate))])
    return np.stack([at_s * SECOND, np.arange(len(at_s))], axis=1).astype(np.int64)[::every]


def test_steps_that_the_job_says_are_its_steps() -> None:
    """Whatever its calls do: twenty synchronising calls a step, and later ten."""
    counts = {1: [400] * 20}
    found = pace(counts, said=said([20.0] * 10 + [10.0] * 12))
    assert found is not None
    assert seconds_of(found) == [(10, 19)]
    assert abs(found.usual.step_ns - SECOND / 20) < SECOND / 1000
    assert abs(found.slow[0].step_ns - SECOND / 10) < SECOND / 500


def test_labels_of_every_tenth_step_tell_the_same_as_all() -> None:
    found = pace({1: [400] * 20}, said=said([200.0] * 10 + [100.0] * 12, every=10))
    assert found is not None
    assert seconds_of(found) == [(10, 19)]
    assert abs(found.usual.step_ns - SECOND / 200) < SECOND / 5000


def test_a_count_that_begins_anew_goes_on() -> None:
    marks = said([20.0] * 22)
    marks[:, 1] %= 50  # an epoch
    found = pace({1: [20] * 20}, said=marks)
    assert found is not None
    assert not found.slow
    assert abs(found.usual.step_ns - SECOND / 20) < SECOND / 500


def test_labels_that_come_too_seldom_or_for_a_part_leave_it_to_the_calls() -> None:
    counts = {1: [20] * 10 + [10] * 10}
    for marks in (said([3.0] * 22), said([50.0] * 5), said([50.0] * 22)[:1]):
        found = pace(counts, said=marks)
        assert found is not None
        assert seconds_of(found) == [(10, 19)]


def test_a_job_that_says_its_steps_needs_no_exact_call() -> None:
    found = pace({4: [9000] * 20}, estimated=(4,), said=said([50.0] * 12 + [25.0] * 10))
    assert found is not None
    assert len(found.slow) == 1


def test_the_pace_now_is_no_mean_of_before_and_after() -> None:
    found = pace({1: [20] * 10 + [10] * 10, 2: [20] * 10 + [10] * 10})
    assert found is not None
    assert abs(found.now.step_ns - SECOND / 10) < SECOND / 200
    assert found.now is found.slow[0]


def test_steps_can_be_fewer_than_the_calls_they_were_counted_by() -> None:
    """A value read back in every layer: the wait is counted exactly, and comes 12 times a step."""
    found = pace({1: [240] * 10 + [120] * 10})
    assert found is not None
    told = found.in_steps(12.0)
    assert abs(told.usual.step_ns - SECOND / 20) < SECOND / 200
    assert abs(told.now.step_ns - SECOND / 10) < SECOND / 200
    assert told.excess_ns(told.slow[0]) == found.excess_ns(found.slow[0])
