"""What was not seen, put in from what was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ingero.governor.counts import Estimator, spread_out
from ingero.governor.seen import METERS, Base, CallingPace, Steps, Watched, own_ns
from ingero.model.histogram import percentiles
from ingero.model.layout import Bucket, CallFlag, Why
from ingero.model.window import OPERATION
from tests.builders import OPERATIONS, call, operation, records

LAUNCH = next(each.number for each in OPERATIONS if each.name == "cuLaunchKernel")
SYNC = next(each.number for each in OPERATIONS if each.name == "cudaStreamSynchronize")
SECOND = 1_000_000_000
STEADY = CallingPace(0.02, 12)
ANCHOR = 3
IN_STEP = CallingPace(0.02, 12, anchor=ANCHOR, per_call=10)


def launches(durations_ns: tuple[int, ...], untimed: int = 0, op: str = "cuLaunchKernel"):
    row = operation(op, durations_ns=durations_ns)
    row["untimed"] = untimed
    return row


def watched(
    share: float = 0.1, pace: CallingPace = STEADY, steps: Steps | None = None, waits: int = 0
) -> Watched:
    """`steps` against the function at meter ANCHOR, which was called `waits` times in the window."""
    on = int(share * SECOND)
    calls = np.zeros(METERS, np.int64)
    calls[ANCHOR] = waits
    found = {(100, LAUNCH, ANCHOR): steps} if steps else {}
    return Watched(
        share, frozenset({LAUNCH}), {(100, LAUNCH): pace}, found, {100: Base(on, SECOND - on, calls)}
    )


def test_what_was_watched_in_full_is_left_as_it_is() -> None:
    rows = records(launches((5000, 6000)), launches((900,), op="cudaStreamSynchronize"))
    found = Estimator().complete(rows, None)
    assert found is rows


def test_calls_that_were_only_counted_keep_the_count_exact_and_share_the_lengths_of_timed_ones() -> None:
    rows = records(launches((4000,) * 30 + (8000,) * 10, untimed=120))
    row = Estimator().complete(rows, None)[0]
    assert (row["count"], row["untimed"], bool(row["estimated"]), row["count_error"]) == (160, 0, False, 0)
    assert row["sum_ns"] == 160 * 5000
    assert row["slots"].sum() == 160
    assert percentiles(row["slots"], (0.5,)) == percentiles(rows[0]["slots"], (0.5,))


def test_a_tenth_of_the_time_stands_for_all_of_it_with_an_error() -> None:
    estimator = Estimator()
    row = estimator.complete(records(launches((5000,) * 100)), watched(0.1))[0]
    assert row["count"] == pytest.approx(1000, abs=1)
    assert row["estimated"]
    assert 0 < row["count_error"] < 300
    assert row["slots"].sum() == row["count"]
    assert row["sum_ns"] == pytest.approx(5000 * 1000, rel=0.01)


def test_rare_operations_stay_exact_beside_estimated_ones() -> None:
    rows = records(launches((5000,) * 100), launches((900, 700), op="cudaStreamSynchronize"))
    found = {int(row["op"]): row for row in Estimator().complete(rows, watched())}
    assert found[SYNC]["count"] == 2
    assert not found[SYNC]["estimated"]


def test_calls_that_keep_step_with_others_are_estimated_by_those() -> None:
    """Ten launches to each wait; 40 waits in the window: the time says nothing here."""
    rows = records(launches((5000,) * 100))
    row = Estimator().complete(rows, watched(0.01, IN_STEP, Steps(90, 9), waits=40))[0]
    assert row["count"] == 400


def test_the_error_reaches_what_the_window_itself_shows() -> None:
    """Steps of ten launches for five seconds, then of twenty: those before do not make it ten and a bit."""
    estimator = Estimator()
    rows = records(launches((5000,) * 90))
    for _ in range(5):
        estimator.complete(rows, watched(0.01, IN_STEP, Steps(90, 9), waits=400))
    row = estimator.complete(rows, watched(0.01, IN_STEP, Steps(180, 9), waits=400))[0]
    assert abs(int(row["count"]) - 20 * 400) <= row["count_error"]


def test_the_error_reaches_what_the_window_itself_shows_by_time() -> None:
    estimator = Estimator()
    for _ in range(5):
        estimator.complete(records(launches((5000,) * 100)), watched(0.1))
    row = estimator.complete(records(launches((5000,) * 200)), watched(0.1))[0]
    assert abs(int(row["count"]) - 2000) <= row["count_error"]


def test_callers_of_a_function_divide_what_was_not_seen() -> None:
    """A thousand launches by the runtime were seen and one by somebody else: not ten thousand of each."""
    rows = records(launches((5000,) * 1000), launches((5000,)))
    rows["caller"] = 1, 2
    estimator = Estimator()
    seen = watched(0.1, replace(IN_STEP, per_call=100), Steps(900, 9), waits=100)
    estimator.complete(rows, seen)
    runtime, direct = estimator.complete(rows, seen)
    assert runtime["count"] == pytest.approx(10_000, rel=0.01)
    assert direct["count"] == pytest.approx(10, abs=1)
    assert direct["count_error"] >= 1


def test_a_part_that_was_seen_is_not_called_exact() -> None:
    """Nothing is known of the rest, or it seems to be nothing: it was not watched all the same."""
    seen = watched(0.1)
    seen.bases.clear()
    row = Estimator().complete(records(launches((5000,) * 100)), seen)[0]
    assert (bool(row["estimated"]), int(row["count"]), int(row["count_error"])) == (True, 1000, 900)
    row = Estimator().complete(
        records(launches((5000,) * 100)), watched(0.1, IN_STEP, Steps(90, 9), waits=5)
    )[0]
    assert row["estimated"]
    assert row["count_error"] > 0


def test_where_what_they_keep_step_with_was_not_called_time_counts() -> None:
    row = Estimator().complete(
        records(launches((5000,) * 100)), watched(0.1, IN_STEP, Steps(90, 9), waits=0)
    )[0]
    assert row["count"] == pytest.approx(1000, abs=2)


def test_where_neither_they_nor_what_they_keep_step_with_was_called_there_were_none() -> None:
    """The job goes on computing after its last step."""
    estimator = Estimator()
    estimator.complete(records(launches((5000,) * 100)), watched(0.1, IN_STEP, Steps(90, 9), waits=100))
    unseen = estimator.complete(np.zeros(0, OPERATION), watched(0.0, IN_STEP, Steps(), waits=0))
    assert int(unseen[0]["count_error"]) > 100  # nobody looked: it may call them without that
    found = estimator.complete(np.zeros(0, OPERATION), watched(0.1, IN_STEP, Steps(), waits=0))
    assert [int(row["count"]) for row in found] == [0]
    assert int(found[0]["count_error"]) <= 10  # one step may have begun
    unseen = estimator.complete(np.zeros(0, OPERATION), watched(0.0, IN_STEP, Steps(), waits=0))
    assert int(unseen[0]["count_error"]) <= 10  # nor did it when it was last seen


def test_calls_of_a_job_that_makes_no_more_of_them_are_not_told_from_before() -> None:
    """By time on a core: it goes on computing."""
    estimator = Estimator()
    estimator.complete(records(launches((5000,) * 100)), watched(0.3))
    found = estimator.complete(np.zeros(0, OPERATION), watched(0.3))
    assert [int(row["count"]) for row in found] == [0]
    assert int(found[0]["count_error"]) > 0


def test_calls_at_the_edges_of_on_periods_are_counted_once() -> None:
    """110 launches were counted, ten of them before and after the time that is known of."""
    seen = watched(0.1)
    seen.bases[100] = replace(seen.bases[100], inside=100 / 110)
    row = Estimator().complete(records(launches((5000,) * 110)), seen)[0]
    assert row["count"] == pytest.approx(1000, abs=2)


@pytest.mark.parametrize("cpu_ns", [0, 1, 1000])
def test_no_more_calls_than_fit_into_the_time(cpu_ns: int) -> None:
    """A process seen on a core for a nanosecond has no rate."""
    seen = watched(0.1)
    seen.bases[100] = replace(seen.bases[100], cpu_ns=cpu_ns, cpu_between_ns=SECOND)
    row = Estimator().complete(records(launches((5000,) * 100)), seen)[0]
    assert row["count"] == pytest.approx(1000)
    assert row["count_error"] == pytest.approx(900)
    seen.bases[100] = replace(seen.bases[100], cpu_ns=cpu_ns, cpu_between_ns=20_000)
    row = Estimator().complete(records(launches((5000,) * 100)), seen)[0]
    assert row["count"] <= 100 + 20_000 / 200


def test_half_of_what_watching_may_cost_is_put_in_and_doubted() -> None:
    plain = Estimator().complete(records(launches((5000,) * 100)), watched())[0]
    slowed = Estimator().complete(records(launches((5000,) * 100)), watched(pace=CallingPace(0.02, 12, 0.1)))[
        0
    ]
    assert slowed["count"] == pytest.approx(100 + 900 / 0.95, abs=1)
    assert slowed["count"] - slowed["count_error"] < plain["count"]
    assert slowed["count"] + slowed["count_error"] > 100 + 900 / 0.9


def test_what_stacks_took_is_not_the_processs_own_time_but_never_all_of_it() -> None:
    assert own_ns(100, 30) == 70
    assert own_ns(100, 500) == 50  # stacks of waits were not on its time


def test_a_window_without_an_on_period_is_told_from_those_before_it() -> None:
    estimator = Estimator()
    estimator.complete(records(launches((5000,) * 100)), watched(0.1))
    found = estimator.complete(np.zeros(0, OPERATION), watched(0.0))
    assert [int(row["count"]) for row in found] == [pytest.approx(1000, abs=2)]


def test_an_operation_that_is_over_is_forgotten() -> None:
    estimator = Estimator()
    estimator.complete(records(launches((5000,) * 100)), watched(0.5))
    nothing = np.zeros(0, OPERATION)
    assert [len(estimator.complete(nothing, watched(0.5))) for _ in range(8)][-1] == 0


def test_the_error_covers_the_truth_of_a_job_that_varies() -> None:
    """On-periods of a job whose rate differs from one to the next: about 95 % of the estimates hold."""
    chance = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        seen = chance.normal(100, 10, 12)  # calls in on-periods of 10 ms
        between = chance.normal(900, 30)
        spread = float(seen.std(ddof=1) / seen.mean())
        rows = records(launches((5000,) * round(float(seen.mean()))))
        row = Estimator().complete(rows, watched(0.1, CallingPace(spread, 12)))[0]
        truth = round(float(seen.mean())) + between
        held += abs(int(row["count"]) - truth) <= int(row["count_error"])
    assert held >= 185


def test_weights_of_records_add_up_to_the_calls() -> None:
    estimator = Estimator()
    rows = estimator.complete(records(launches((5000,) * 100)), watched(0.1))
    calls = records(*(call("cuLaunchKernel", at_ns=at, weight=weight) for at, weight in ((1, 60), (2, 40))))
    calls["why"] = int(Why.WHY_SAMPLE)
    calls["flags"] = 0
    estimator.weigh(calls)
    assert calls["weight"].sum() == rows[0]["count"]


def test_records_of_other_callers_and_slow_calls_get_no_weight() -> None:
    estimator = Estimator()
    estimator.complete(records(launches((5000,) * 100)), watched(0.1))
    calls = records(*(call("cuLaunchKernel", at_ns=at, weight=1) for at in (1, 2)))
    calls["why"] = int(Why.WHY_SLOW), int(Why.WHY_SAMPLE)
    calls["flags"] = 0, int(CallFlag.CALL_DIRECT)
    estimator.weigh(calls)
    assert calls["weight"].tolist() == [1, 1]


def test_time_in_calls_that_were_only_counted_is_known_from_timed_ones() -> None:
    row = launches((4000,) * 10, untimed=30)
    row["split"][0][Bucket.CUDA_CPU] = 10 * 4000
    estimator = Estimator()
    estimator.complete(records(row), None)
    assert estimator.hidden_ns() == {100: 4000.0}


def test_rounding_loses_nothing() -> None:
    slots = np.array([3.0, 0.0, 1.0, 5.0, 0.3])
    for count in (1, 7, 1000, 99_999):
        assert spread_out(slots, count).sum() == count


def test_a_job_that_does_something_else_is_not_told_from_what_it_did_before() -> None:
    estimator = Estimator()
    for _ in range(4):
        estimator.complete(records(launches((5000,) * 10)), watched(0.1))
    estimator.complete(records(launches((5000,) * 1000)), watched(0.1))
    estimator.forget_pools()
    row = estimator.complete(records(launches((5000,) * 1000)), watched(0.1))[0]
    assert row["count"] == pytest.approx(10_000, abs=1)
    row = estimator.complete(np.zeros(0, OPERATION), watched(0.0))[0]  # no on-period in it: as the last one
    assert row["count"] == pytest.approx(10_000, abs=1)


def test_a_window_that_shows_quite_another_rate_is_told_by_itself() -> None:
    """Ten times the calls by time: those before it tell nothing of it, and its error is not ten times it."""
    estimator = Estimator()
    for _ in range(5):
        estimator.complete(records(launches((5000,) * 100)), watched(0.1))
    row = estimator.complete(records(launches((5000,) * 1000)), watched(0.1))[0]
    assert row["count"] == pytest.approx(10_000, rel=0.01)
    assert row["count_error"] < 5000
