"""What threads call per second, and what records and stacks take of them, from counters made up here."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from ingero.agent.control import HIGH, Controller, cost_share
from ingero.agent.looks import Looks
from ingero.attach.cost import HitCost
from ingero.capture.costs import Costs, Reading
from ingero.model import layout
from ingero.model.layout import Group

COST = HitCost("session", 3000.0, 1500.0, 1200.0, 1000.0)
BUDGET = 0.02
MS = 1_000_000
TID = 100


class Counters:
    """As Costs: one thread."""

    def __init__(self) -> None:
        self.row = np.zeros(1, layout.THREAD_COST)
        self.row["pid"] = self.row["tid"] = TID

    def read(self) -> Reading:
        return Reading(np.array([0]), self.row.copy())

    def pass_by(self, ms: float, launches: float, records: float) -> None:
        """So many a second; the stack of a record takes ten microseconds."""
        self.row["timed"][0][Group.GROUP_LAUNCH] += int(launches * ms / 1000)
        self.row["records"] += int(records * ms / 1000)
        self.row["walk_ns"] += int(records * ms / 1000) * 10_000


def looks(counters: Counters) -> Looks:
    return Looks(cast(Costs, cast(Any, counters)), COST, 0)


def load_of(made: Looks) -> Any:
    worst = made.worst()
    assert worst is not None
    return worst[2]


def test_records_count_over_all_the_time_not_only_while_everything_is_watched() -> None:
    """A look begins with a record of every operation: the shorter it is, the more there are in its time."""
    counters = Counters()
    made = looks(counters)
    now = 0
    for _ in range(20):  # 20 ms of every 200, with two records in each
        now += 180 * MS
        made.skip(now)
        counters.pass_by(20, 3000, 100)
        now += 20 * MS
        made.take(now, 0)
    load = load_of(made)
    assert load.calls[Group.GROUP_LAUNCH] == 3000
    assert load.detail_share < 0.2e-3  # 10 records a second, 11 us each


def test_records_that_come_however_few_are_asked_for_are_not_thought_to_be_one_in_many() -> None:
    counters = Counters()
    made = looks(counters)
    controller = Controller(BUDGET, COST, can_cycle=True)
    seen = []
    for at in range(1, 400):  # what tracing costs: 0.8 % for calls, 0.25 % for records that stay
        counters.pass_by(50, 2700, 225)
        made.take(at * 50 * MS, controller.watch.detail)
        controller.step(load_of(made), at * 50 * MS)
        seen.append(controller.watch)
    load = load_of(made)
    assert load.whole_share < 0.005
    assert load.detail_at(0) == load.whole_share
    assert cost_share(load, controller.watch, COST) <= HIGH * BUDGET
    assert controller.watch.share == 1.0  # counting some launches alone is enough: none need be passed by
    assert len(set(seen[-200:])) == 1


def test_what_all_detail_takes_is_remembered_from_when_it_was_asked_for() -> None:
    counters = Counters()
    made = looks(counters)
    for at in range(1, 40):
        counters.pass_by(50, 1000, 2000)
        made.take(at * 50 * MS, 0)
    whole = load_of(made).detail_share
    for at in range(40, 80):  # a quarter of them is left
        counters.pass_by(50, 1000, 500)
        made.take(at * 50 * MS, 1)
    load = load_of(made)
    assert load.detail_at(0) == whole
    assert load.detail_at(1) < 0.3 * whole


def test_one_long_stack_just_after_a_change_does_not_count_for_all_the_time() -> None:
    """A millisecond is a fiftieth of the first look, and nothing of the next five."""
    counters = Counters()
    made = looks(counters)
    for at in range(1, 8):
        counters.pass_by(50, 1000, 0)
        if at == 2:
            counters.row["walk_ns"] += MS
        made.take(at * 50 * MS, 1)
    assert load_of(made).detail_share < 0.005


def looked(rates: list[float]) -> tuple[Looks, list[bool]]:
    """Looks of 20 ms on a core at so many launches a second, and after which of them the job was another."""
    counters = Counters()
    made = looks(counters)
    changes = []
    for rate in rates:
        counters.pass_by(20, rate, 0)
        made.close([int(Group.GROUP_LAUNCH)], {TID: 20 * MS})
        made.skip(0)
        changes.append(made.forget_what_was())
    return made, changes


def test_looks_that_agree_on_another_rate_replace_those_before() -> None:
    made, changes = looked([6000] * 8 + [50_000] * 4)
    assert changes == [False] * 11 + [True]
    assert len(made) == 4
    assert made.processes()[TID].spread < 0.01


def test_a_job_that_goes_up_and_down_stays_the_same_job() -> None:
    assert not any(looked([6000, 50_000, 6000, 50_000] * 5)[1])
    assert not any(looked([6000, 10_000, 5000, 9000] * 5)[1])
    assert not any(looked([6000] * 8 + [50_000] * 3)[1])


def test_a_job_with_phases_is_not_another_at_each_of_them() -> None:
    assert sum(looked(([6000] * 5 + [50_000] * 5) * 6)[1]) <= 3


def test_hardly_any_calls_say_nothing_of_a_change() -> None:
    assert not any(looked([50] * 8 + [200] * 4)[1])
