"""On-periods: what a process's calls keep step with, and when it does something else."""

from __future__ import annotations

import numpy as np
import pytest

from ingero.governor.seen import METERS, OTHERS, Aligned, Period, Periods, Steps

MS = 1_000_000
PID, LAUNCH, ANCHOR, OTHER = 100, 7, 3, 4


def seen(rates: list[float]) -> tuple[Periods, list[bool]]:
    """Periods of 20 ms on a core at so many launches a second, and after which the job was another."""
    periods, changes = Periods(), []
    for rate in rates:
        periods.add(Period({(PID, LAUNCH): int(rate * 0.02)}, {PID: 20 * MS}, {PID: 0.0}))
        changes.append(periods.forget_what_was())
    return periods, changes


def test_periods_that_agree_on_another_rate_replace_those_before() -> None:
    periods, changes = seen([6000] * 12 + [50_000] * 6)
    assert changes == [False] * 17 + [True]
    assert len(periods) == 6
    assert periods.paces({LAUNCH})[PID, LAUNCH].periods < 12


def test_a_job_that_goes_up_and_down_stays_the_same_job() -> None:
    assert not any(seen([6000, 50_000, 6000, 50_000] * 8)[1])
    assert not any(seen([6000, 10_000, 5000, 9000] * 8)[1])
    assert not any(seen([6000] * 12 + [50_000] * 5)[1])


def test_a_job_with_phases_is_not_another_at_each_of_them() -> None:
    assert sum(seen(([6000] * 8 + [50_000] * 8) * 8)[1]) <= 3


def test_hardly_any_calls_say_nothing_of_a_change() -> None:
    assert not any(seen([50] * 12 + [100] * 6)[1])


def test_calls_are_counted_from_one_step_to_another() -> None:
    """Looked at amid steps of 160 launches and a wait: what lies before the first wait does not count."""
    aligned = Aligned()
    for launches, waits in ((37, 0), (120, 0), (161, 1), (290, 1), (322, 2), (482, 3), (560, 3)):
        calls = np.zeros(METERS, np.int64)
        calls[1], calls[2] = launches, waits
        aligned.note(waits, calls)
    found = aligned.steps(1)
    assert (found.calls, found.always) == (482 - 161, 2)
    # The waits came anywhere among the launches since the look before: 41 of them, and 160.
    assert found.missed == pytest.approx((41**2 + 160**2) / 12, rel=0.01)


def test_a_few_periods_that_agree_are_no_proof_of_a_steady_job() -> None:
    """Looks of three milliseconds at steps of nearly three: each time a wait, some launches too many."""
    periods = Periods()
    for _ in range(4):
        steps = {(PID, LAUNCH, ANCHOR): Steps(5 * 422, 5, missed=422**2 / 6)}
        periods.add(Period({(PID, LAUNCH): 2300}, {PID: 15 * MS}, {PID: 3.0 * MS}, steps))
    pace = periods.paces({LAUNCH})[PID, LAUNCH]
    assert pace.anchor == ANCHOR
    assert pace.chance > 422 / 400 - 1  # steps of 400 are possible


def test_a_period_without_two_steps_says_nothing() -> None:
    aligned = Aligned()
    aligned.note(1, np.ones(METERS, np.int64))
    assert aligned.steps(1) == Steps(0, 0)
    assert Aligned().steps(1) == Steps()


def test_the_function_that_calls_keep_step_with_best_is_found() -> None:
    """Each wait has 160 launches; allocations come as they like."""
    chance = np.random.default_rng(3)
    periods = Periods()
    for _ in range(12):
        waits = int(chance.integers(2, 5))
        steps = {
            (PID, LAUNCH, ANCHOR): Steps(160 * waits, waits),
            (PID, LAUNCH, OTHER): Steps(160 * waits, int(chance.integers(1, 20))),
        }
        cpu = int(chance.uniform(10, 40) * MS)
        periods.add(Period({(PID, LAUNCH): 160 * waits + 80}, {PID: cpu}, {PID: 0.4 * cpu}, steps))
    pace = periods.paces({LAUNCH})[PID, LAUNCH]
    assert pace.anchor == ANCHOR
    assert pace.spread == pytest.approx(0, abs=1e-9)


def test_what_all_others_do_together_is_gone_by_only_where_there_is_nothing_else() -> None:
    periods = Periods()
    for waits in (3, 4, 2, 5):
        steps = {(PID, LAUNCH, OTHERS): Steps(100 * waits, 10 * waits)}
        periods.add(Period({(PID, LAUNCH): 100 * waits}, {PID: 20 * MS * waits % 7}, {}, steps))
    assert periods.paces({LAUNCH})[PID, LAUNCH].anchor == OTHERS
    for waits in (3, 4, 2, 5):
        steps = {(PID, LAUNCH, OTHERS): Steps(100 * waits, 10 * waits)}
        steps |= {(PID, LAUNCH, ANCHOR): Steps(100 * waits + waits % 2, waits)}
        periods.add(Period({(PID, LAUNCH): 100 * waits}, {PID: 20 * MS * waits % 7}, {}, steps))
    assert periods.paces({LAUNCH})[PID, LAUNCH].anchor == ANCHOR


def test_where_nothing_keeps_step_time_on_a_core_counts() -> None:
    periods = Periods()
    for count in (100, 102, 99):
        steps = {(PID, LAUNCH, ANCHOR): Steps(count, 1)}  # too few
        periods.add(Period({(PID, LAUNCH): count}, {PID: 20 * MS}, {PID: 2.0 * MS}, steps))
    pace = periods.paces({LAUNCH})[PID, LAUNCH]
    assert pace.anchor is None
    assert pace.slowed == pytest.approx(0.1)


def test_what_keeps_step_is_still_known_when_other_functions_are_watched_less() -> None:
    """And not what kept step with one of those."""
    periods = Periods()
    for waits in (3, 4, 2, 5):
        steps = {
            (PID, LAUNCH, ANCHOR): Steps(100 * waits, waits),
            (PID, LAUNCH, OTHERS): Steps(100 * waits, waits),
        }
        periods.add(Period({(PID, LAUNCH): 100 * waits}, {PID: 20 * MS}, {}, steps))
    periods.forget_times({OTHERS})
    pace = periods.paces({LAUNCH})[PID, LAUNCH]
    assert (pace.anchor, pace.per_call) == (ANCHOR, 100)
    periods.forget_times({ANCHOR})
    assert not periods.paces({LAUNCH})


def test_few_periods_that_agree_by_time_leave_much_doubt() -> None:
    """The job's steps may end between them and the next."""
    few, many = Periods(), Periods()
    for periods, count in ((few, 3), (many, 24)):
        for _ in range(count):
            periods.add(Period({(PID, LAUNCH): 500}, {PID: 20 * MS}))
    assert few.paces({LAUNCH})[PID, LAUNCH].chance > 0.25
    assert many.paces({LAUNCH})[PID, LAUNCH].chance < 0.1
