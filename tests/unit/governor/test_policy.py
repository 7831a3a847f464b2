"""The policy over made-up loads: it fits the budget, rests, and lets go; no clock, no kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest

from ingero.attach.probes import BY_NAME
from ingero.governor.governor import TELLING, WHOLE
from ingero.governor.policy import (
    AIM,
    ALL,
    COUNTING,
    FIRST_NS,
    HIGH,
    LEAST_SHARE,
    LONGEST_NS,
    LONGEST_PAUSE_NS,
    STEPS,
    Controller,
    Load,
    Means,
    Watch,
    cost_share,
    fitting,
    period_ns,
    step_ns,
    turn_ns,
    whole_steps_ns,
)
from ingero.governor.seen import METERS
from ingero.model.hit_cost import HitCost

SESSION = HitCost("session", 1600.0, 1000.0, 850.0, 300.0)
CARD = HitCost("session", 2900.0, 2000.0, 1700.0, 300.0)
MULTI = HitCost("multi", 1700.0, 1700.0, 1450.0, 300.0)
LAUNCH, EVENT, COPY, WAIT, ALLOC = (
    BY_NAME[name][0]
    for name in (
        "cuLaunchKernel",
        "cuEventRecord",
        "cuMemcpyHtoDAsync_v2",
        "cuStreamSynchronize",
        "cuMemAlloc_v2",
    )
)
MEANS = Means(SESSION, waits=frozenset({WAIT}))
BUDGET = 0.02
SECOND = 1_000_000_000
TENTH = SECOND // 10
TICK = SECOND // 20
PID = 100


def load(launches: float = 0.0, detail: float = 0.0, others: float = 0.0, **more: float) -> Load:
    rates = {LAUNCH: launches, EVENT: more.get("events", 0.0), COPY: more.get("copies", 0.0)}
    rates |= {WAIT: more.get("waits", 0.0), ALLOC: more.get("allocations", 0.0)}
    return Load({each: rate for each, rate in rates.items() if rate}, others, detail, more.get("fixed", 0.0))


def expected(now: Load, watch: Watch, means: Means = MEANS) -> float:
    return cost_share(now, watch, means) + now.detail_share


def run(controller: Controller, loads: Iterable[Load], step_ns: int = TENTH) -> list[tuple[int, Watch]]:
    """Changes over loads that last a step each; what is spent is what each load costs."""
    changes = []
    for at, each in enumerate(loads):
        share = expected(each, controller.watch, controller.means)
        controller.spend({PID: share * step_ns}, step_ns)
        if controller.step(each, at * step_ns):
            changes.append((at, controller.watch))
    return changes


def fit(now: Load, means: Means = MEANS, budget: float = BUDGET) -> Watch:
    return fitting(now, ALL, means, budget)


def test_a_quiet_job_is_watched_in_full() -> None:
    controller = Controller(BUDGET, MEANS)
    assert run(controller, [load(launches=4000, others=500)] * 100) == []
    assert controller.watch == ALL


@pytest.mark.parametrize("launches", [15_000, 30_000, 60_000, 100_000, 300_000])
@pytest.mark.parametrize("cost", [SESSION, MULTI])
def test_a_steady_load_fits_the_budget_after_one_change(launches: int, cost: HitCost) -> None:
    controller = Controller(BUDGET, Means(cost))
    changes = run(controller, [load(launches)] * 600)
    assert len(changes) == 1
    assert expected(load(launches), controller.watch, Means(cost)) <= BUDGET


def test_a_burst_is_no_rate() -> None:
    """Thirty thousand launches a second for a sixth of the time are five thousand."""
    controller = Controller(BUDGET, MEANS)
    step = [load(30_000)] * 1 + [load()] * 5  # of 8 ms each
    for at, each in enumerate(step * 1000):
        controller.spend({PID: expected(each, controller.watch) * 8_000_000}, 8_000_000)
        assert not controller.step(load(30_000), at * 8_000_000)  # in the burst


def test_a_hot_loop_is_acted_on_before_it_has_overspent() -> None:
    """In its first second no more is spent than the budget has for it."""
    controller = Controller(BUDGET, MEANS)
    changes = run(controller, [load(100_000)] * 100, step_ns=10_000_000)
    hits = load(100_000)
    spent = changes[0][0] * 0.01 * expected(hits, ALL) + expected(hits, controller.watch)
    assert spent <= BUDGET


def test_what_is_given_up_comes_in_order_and_only_as_far_as_needed() -> None:
    assert fit(load(1000, detail=0.007)) == ALL
    assert fit(load(3000, detail=0.01)) == Watch(less_detail=True)
    thinned = fit(load(6500))
    assert (thinned.every, thinned.thinned, thinned.cycles) == (2, {LAUNCH}, False)
    cycled = fit(load(100_000))
    assert cycled.cycled == {LAUNCH}
    both = fit(load(100_000, events=100_000))
    assert both.cycled == {LAUNCH, EVENT}


def test_as_long_as_every_call_can_be_counted_it_is() -> None:
    watch = fit(load(9_000))
    assert not watch.cycles
    assert AIM * BUDGET < expected(load(9_000), watch) <= COUNTING * BUDGET < HIGH * BUDGET


def test_a_function_that_is_called_now_and_then_is_timed_every_time_whatever_the_rest_costs() -> None:
    """Copies that last 60 ms, ten times a second, beside launches without end; and waits and allocations."""
    for launches in (12_000, 100_000, 400_000):
        watch = fit(load(launches, copies=10.0, waits=30.0, allocations=5.0))
        assert watch.thinned | watch.cycled == {LAUNCH}


def test_waits_and_allocations_that_come_in_the_ten_thousands_obey_the_budget_too() -> None:
    items = load(14_000, waits=14_000)
    watch = fit(items)
    assert watch.cycled == {LAUNCH, WAIT}
    assert watch.thinned == {LAUNCH}  # how long a wait is shows only where it is timed
    assert expected(items, watch) <= BUDGET
    allocations = load(11_000, allocations=11_000)
    assert ALLOC in fit(allocations).cycled
    assert expected(allocations, fit(allocations)) <= BUDGET


def test_a_job_with_much_beside_its_launches_stays_within_what_is_aimed_at() -> None:
    """A small transformer where a hit costs 3 us: launches alone cannot make up for the rest."""
    means = Means(CARD, waits=frozenset({WAIT}), telling=TELLING)
    busy = load(42_000, others=300.0, copies=800.0, events=1200.0, allocations=400.0)
    watch = fit(busy, means)
    assert watch.cycled == {LAUNCH, EVENT}
    assert cost_share(busy, watch, means) <= BUDGET / 2


def test_where_even_the_least_is_too_much_the_rare_are_spared_all_the_same() -> None:
    means = Means(CARD, waits=frozenset({WAIT}), telling=TELLING)
    for launches in (185_000, 400_000):
        assert fit(load(launches, others=2000.0, waits=250.0), means).cycled == {LAUNCH}


def test_what_tells_most_is_spared_where_there_is_room() -> None:
    means = Means(CARD, waits=frozenset({WAIT}), telling=TELLING)
    everyday = load(8_000, copies=450.0, waits=30.0, allocations=5.0)
    watch = fit(everyday, means)
    assert watch.cycled == {LAUNCH}
    assert watch.share > 0.05


def test_collectives_and_contexts_are_never_watched_less() -> None:
    """They are numbered, and say which GPU a thread means: one that is missed makes others wrong."""
    collective, context = BY_NAME["ncclAllReduce"][0], BY_NAME["cuCtxSetCurrent"][0]
    assert {collective, context} <= WHOLE
    means = Means(SESSION, waits=frozenset({WAIT}), whole=WHOLE)
    for launches in (4000, 20_000, 100_000):
        watch = fit(Load({LAUNCH: launches, collective: 5000.0, context: 5000.0}), means)
        assert not {collective, context} & (watch.thinned | watch.cycled)


def test_a_wait_is_never_counted_without_being_timed() -> None:
    for waits in (2000, 8000, 20_000, 100_000):
        assert WAIT not in fit(load(1000, waits=waits)).thinned


@pytest.mark.parametrize("launches", [30_000, 100_000, 300_000])
@pytest.mark.parametrize("budget", [0.01, 0.02, 0.05])
def test_taking_probes_off_and_on_counts_as_cost(launches: int, budget: float) -> None:
    watch = fit(load(launches), budget=budget)
    if watch.cycles and watch.share > LEAST_SHARE:
        hits = launches * watch.share * (SESSION.ns + 15 * SESSION.counted_ns) / 16 / 1e9
        turns = watch.share / period_ns(watch.share) * turn_ns(1)
        assert hits + turns == pytest.approx(cost_share(load(launches), watch, MEANS), rel=0.01)
        assert hits + turns <= AIM * budget * 1.001


def test_counting_without_timing_is_not_tried_where_it_is_no_cheaper() -> None:
    assert not fit(load(6500), Means(MULTI)).thinned
    assert fit(load(100_000), Means(MULTI, can_cycle=False)) == Watch(less_detail=True)


def test_it_lets_go_when_the_load_falls_but_not_at_once() -> None:
    controller = Controller(BUDGET, MEANS)
    changes = run(controller, [load(100_000)] * 50 + [load(1000)] * 100)
    assert [watch for _, watch in changes][1:] == [ALL]
    assert (changes[1][0] - changes[0][0]) * TENTH >= FIRST_NS


def test_a_load_that_comes_and_goes_is_not_followed_up_and_down() -> None:
    """Bursts of two seconds in every eight: each time it lets go too soon it waits longer the next time."""
    controller = Controller(BUDGET, MEANS)
    burst, rest = [load(100_000)] * 20, [load(500)] * 60
    changes = [at for at, _ in run(controller, (burst + rest) * 40)]  # 320 s
    assert all(after > before for before, after in itertools.pairwise(changes))
    assert len([at for at in changes if at > 1600]) <= 8


def test_a_load_that_wavers_within_the_band_changes_nothing() -> None:
    controller = Controller(BUDGET, MEANS)
    wavering = [load(100_000 * (1.15 if at % 2 else 0.85)) for at in range(600)]
    assert len(run(controller, wavering)) <= 2


def test_a_load_that_grows_slowly_is_kept_within_the_budget_all_the_time() -> None:
    controller = Controller(BUDGET, MEANS)
    spent = []
    for at in range(600):
        now = load(1000 + at * 400)
        run(controller, [now])
        spent.append(expected(now, controller.watch))
    assert all(sum(spent[at : at + 20]) / 20 <= BUDGET for at in range(580))  # over two seconds


def test_a_job_that_rests_between_bursts_is_judged_by_all_of_its_time() -> None:
    """Five milliseconds are spent in one tick of four, twice the allowance: rests do not wipe that out."""
    controller = Controller(BUDGET, MEANS)
    changes = []
    for at in range(40):
        controller.spend({PID: 5_000_000.0} if at % 4 == 0 else {}, TICK)
        if controller.step(load(15_000), at * TICK):
            changes.append(at)
    assert changes


def test_other_processes_do_not_use_up_the_credit_of_one() -> None:
    controller = Controller(BUDGET, MEANS)
    quiet = dict.fromkeys(range(50), 0.004 * TENTH)  # each well below its own limit
    for at in range(100):
        controller.spend(quiet, TENTH)
        assert not controller.step(load(2500), at * TENTH)


def test_on_periods_have_whole_steps_as_far_as_the_pause_after_them_allows() -> None:
    assert whole_steps_ns(0.1, 20e6) == STEPS * 20e6
    assert whole_steps_ns(0.02, 100e6) < 0.03 * LONGEST_PAUSE_NS
    assert whole_steps_ns(1.0, 100e6) <= LONGEST_NS
    assert whole_steps_ns(0.1, 0) == 0


def test_a_step_is_as_long_as_from_one_call_of_the_rarest_that_comes_often_to_the_next() -> None:
    rates = np.zeros(METERS)
    rates[1], rates[2], rates[3] = 50.0, 700.0, 0.2
    assert step_ns(rates, {1, 2, 3}) == 20e6
    assert step_ns(rates, {3, 4}) == 0
