"""The control law over made-up loads: it fits the budget, rests, and lets go."""

from __future__ import annotations

import itertools

import pytest

from ingero.agent.control import (
    ALL,
    FIRST_NS,
    GROUPS,
    LEAST_SHARE,
    TIGHTEN_NS,
    TURN_NS,
    Controller,
    Load,
    Watch,
    cost_share,
    fitting,
    look_ns,
)
from ingero.attach.cost import HitCost
from ingero.model.layout import Group

SESSION = HitCost("session", 1600.0, 1000.0, 850.0, 300.0)
MULTI = HitCost("multi", 1700.0, 1700.0, 1450.0, 300.0)
BUDGET = 0.02
SECOND = 1_000_000_000
TENTH = SECOND // 10


def load(launches: float = 0.0, other: float = 0.0, detail: float = 0.0, **more: float) -> Load:
    calls = [0.0] * GROUPS
    calls[Group.GROUP_OTHER], calls[Group.GROUP_LAUNCH] = other, launches
    calls[Group.GROUP_EVENT] = more.get("events", 0.0)
    calls[Group.GROUP_SYNC] = more.get("syncs", 0.0)
    return Load(tuple(calls), detail, more.get("fixed", 0.0))


def run(controller: Controller, loads: list[Load]) -> list[tuple[int, Watch]]:
    """Changes over loads a tenth of a second each."""
    changes = []
    for at, each in enumerate(loads):
        if controller.step(each, at * TENTH):
            changes.append((at, controller.watch))
    return changes


def test_a_quiet_job_is_watched_in_full() -> None:
    controller = Controller(BUDGET, SESSION, can_cycle=True)
    assert run(controller, [load(launches=2000, other=500)] * 100) == []
    assert controller.watch == ALL


@pytest.mark.parametrize("launches", [15_000, 30_000, 60_000, 100_000, 300_000])
@pytest.mark.parametrize("cost", [SESSION, MULTI])
def test_a_steady_load_fits_the_budget_after_one_change(launches: int, cost: HitCost) -> None:
    controller = Controller(BUDGET, cost, can_cycle=True)
    changes = run(controller, [load(launches)] * 600)
    assert len(changes) == 1
    assert cost_share(load(launches), controller.watch, cost) <= BUDGET


def test_steps_are_taken_in_order_and_only_as_far_as_needed() -> None:
    aim = 0.014
    assert fitting(load(1000, detail=0.05), SESSION, aim, True) == Watch(detail=2)
    thinned = fitting(load(12_000), SESSION, aim, True)
    assert (thinned.every, thinned.share, thinned.detail) == (4, 1.0, 0)
    cycled = fitting(load(100_000), SESSION, aim, True)
    assert cycled.cycles
    assert cycled.groups == {Group.GROUP_LAUNCH}
    both = fitting(load(100_000, events=100_000), SESSION, aim, True)
    assert both.groups == {Group.GROUP_LAUNCH, Group.GROUP_EVENT}


@pytest.mark.parametrize("launches", [30_000, 100_000, 300_000])
@pytest.mark.parametrize("aim", [0.004, 0.014, 0.05])
def test_taking_probes_off_and_on_counts_as_cost(launches: int, aim: float) -> None:
    watch = fitting(load(launches), SESSION, aim, True)
    assert watch.cycles or aim > 0.04
    turns = watch.share / look_ns(watch.share) if watch.cycles else 0.0
    calls = launches * watch.share * (SESSION.ns + 3 * SESSION.counted_ns) / 4 / 1e9
    if watch.share > LEAST_SHARE and watch.cycles:
        assert calls + turns * TURN_NS == pytest.approx(aim, rel=0.07)
        assert calls < aim


def test_what_is_rare_is_never_taken_off() -> None:
    hot = load(100_000, other=50_000, syncs=50_000)
    for can_cycle in (True, False):
        watch = fitting(hot, SESSION, 0.014, can_cycle)
        assert watch.groups <= {Group.GROUP_LAUNCH}
        assert watch.share >= LEAST_SHARE


def test_a_group_that_is_called_now_and_then_stays_watched_whatever_the_rest_costs() -> None:
    """Leaving it out wins nothing."""
    rarely = load(launches=100_000, events=4000)
    assert fitting(rarely, SESSION, BUDGET, True).groups == {Group.GROUP_LAUNCH}
    hopeless = load(launches=100_000, other=30_000, events=4000)
    assert fitting(hopeless, SESSION, BUDGET, True).groups == {Group.GROUP_LAUNCH}
    both = {Group.GROUP_LAUNCH, Group.GROUP_EVENT}
    assert fitting(load(launches=100_000, events=60_000), SESSION, BUDGET, True).groups == both
    never_fits = load(launches=400_000, events=20_000)  # with the launches left out alone
    assert fitting(never_fits, SESSION, BUDGET, True).groups == both


def test_counting_without_timing_is_not_tried_where_it_is_no_cheaper() -> None:
    assert fitting(load(12_000), MULTI, 0.014, True).every == 1
    assert fitting(load(100_000), MULTI, 0.014, False) == Watch()


def test_it_lets_go_when_the_load_falls_but_not_at_once() -> None:
    controller = Controller(BUDGET, SESSION, can_cycle=True)
    changes = run(controller, [load(100_000)] * 50 + [load(1000)] * 100)
    assert [watch for _, watch in changes][1:] == [ALL]
    assert (changes[1][0] - changes[0][0]) * TENTH >= FIRST_NS


def test_a_load_that_comes_and_goes_is_not_followed_up_and_down() -> None:
    """Bursts of two seconds in every eight: each time it lets go too soon it waits longer the next time."""
    controller = Controller(BUDGET, SESSION, can_cycle=True)
    burst, rest = [load(100_000)] * 20, [load(500)] * 60
    changes = [at for at, _ in run(controller, (burst + rest) * 40)]  # 320 s
    assert all((after - before) * TENTH >= TIGHTEN_NS for before, after in itertools.pairwise(changes))
    late = [at for at in changes if at > 1600]
    assert len(late) <= 8


def test_a_load_that_wavers_within_the_band_changes_nothing() -> None:
    controller = Controller(BUDGET, SESSION, can_cycle=True)
    wavering = [load(100_000 * (1.15 if at % 2 else 0.85)) for at in range(600)]
    assert len(run(controller, wavering)) <= 2


def test_a_load_that_grows_slowly_is_kept_within_the_budget_all_the_time() -> None:
    controller = Controller(BUDGET, SESSION, can_cycle=True)
    for at in range(600):
        now = load(1000 + at * 400)
        controller.step(now, at * TENTH)
        assert cost_share(now, controller.watch, SESSION) <= BUDGET
