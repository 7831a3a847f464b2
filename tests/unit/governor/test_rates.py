"""What functions are called per second, and what records and stacks take, from counters made up here."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from ingero.attach.probes import BY_NAME
from ingero.governor.policy import Load
from ingero.governor.rates import OPERATIONS, CounterReading, Counters, Rates
from ingero.governor.seen import METERS
from ingero.model import layout
from ingero.model.hit_cost import HitCost

COST = HitCost("session", 3000.0, 1500.0, 1200.0, 1000.0)
MS = 1_000_000
PID = TID = 100
LAUNCH, COPY, WAIT = (
    BY_NAME[name][0] for name in ("cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize")
)


class Made:
    """As Counters: one thread, whose functions are counted as the kernel side counts them."""

    def __init__(self) -> None:
        self.row = np.zeros(1, layout.THREAD_COST)
        self.row["pid"] = self.row["tid"] = TID
        self.by_operation = np.zeros(OPERATIONS, np.int64)
        self.rates = Rates(cast(Counters, cast(Any, self)), COST, 0)
        self.now_ns = 0

    def read(self) -> CounterReading:
        return CounterReading(np.array([0]), self.row.copy())

    def hits(self) -> NDArray[np.int64]:
        return self.by_operation.copy()

    def call(self, function: int, count: int) -> None:
        meter = self.rates.meters.get(function, 0)
        self.row["timed"][0][meter] += np.uint32(count)
        self.by_operation[function] += 0 if meter else count

    def walk(self, count: int) -> None:
        self.row["records"] += count
        self.row["walk_ns"] += count * 10_000

    def take(self, ms: float, cycled: tuple[int, ...] = (), on: bool = True) -> None:
        self.now_ns += int(ms * MS)
        self.rates.take(self.now_ns, cycled, on)

    def load(self) -> Load:
        worst = self.rates.worst()
        assert worst is not None
        return worst[2]


@pytest.fixture
def made() -> Made:
    return Made()


def test_a_function_that_is_called_often_is_counted_by_itself(made: Made) -> None:
    made.call(LAUNCH, 100)
    made.call(COPY, 1)
    made.take(50)
    assert made.rates.new_meters(made.now_ns) == {LAUNCH: 1}
    for _ in range(40):
        made.call(LAUNCH, 100)
        made.take(50)
    assert made.load().calls == {LAUNCH: pytest.approx(2000, rel=0.02)}
    assert made.load().others == pytest.approx(0, abs=0.1)


def test_a_call_of_each_step_is_counted_by_itself_and_one_of_the_start_is_not(made: Made) -> None:
    for function in range(10, 30):  # modules are loaded, once
        made.call(function, 2)
    found: dict[int, int] = {}
    for _ in range(10):
        made.call(LAUNCH, 100)
        made.call(COPY, 3)
        made.take(50)
        found |= made.rates.new_meters(made.now_ns)
    assert set(found) == {LAUNCH, COPY}


def test_waits_have_a_counter_of_their_own_from_the_first_on_while_there_are_many(made: Made) -> None:
    made.call(WAIT, 1)
    made.take(50)
    assert made.rates.new_meters(made.now_ns, {WAIT}) == {WAIT: 1}
    others = range(1, OPERATIONS)
    for at in range(3):
        for function in others:
            made.call(function, 100)
        made.take(50)
        found = made.rates.new_meters(made.now_ns, {WAIT})
        assert len(found) == (METERS - 2 if not at else 0)  # no more than there are


def test_a_burst_in_a_short_on_period_does_not_count_for_more_than_it_is(made: Made) -> None:
    """A step launches 100 times in 2 ms and then waits 18; on-periods are of 30 ms, a tenth of the time."""
    made.call(LAUNCH, 100)
    made.take(20)
    made.rates.new_meters(made.now_ns)
    seen = []
    for period in range(200):
        made.take(270, (LAUNCH,), on=False)
        bursts = 1 + period % 2  # one or two of them fall into 30 ms
        made.call(LAUNCH, 100 * bursts)
        made.take(30, (LAUNCH,))
        seen.append(made.load().calls[LAUNCH])
    assert np.mean(seen[50:]) == pytest.approx(5000, rel=0.05)
    assert max(seen[50:]) < 1.2 * 5000


def test_functions_that_are_watched_all_the_time_count_while_others_are_off(made: Made) -> None:
    for function in (LAUNCH, COPY):
        made.call(function, 100)
    made.take(50)
    made.rates.new_meters(made.now_ns)
    for _ in range(40):
        made.call(COPY, 30)
        made.take(100, (LAUNCH,), on=False)
        made.call(LAUNCH, 100)
        made.call(COPY, 3)
        made.take(10, (LAUNCH,))
    assert made.load().calls == {LAUNCH: pytest.approx(10_000, rel=0.05), COPY: pytest.approx(300, rel=0.05)}


def test_what_other_programs_take_counts_with_the_function_they_are_beside(made: Made) -> None:
    made.call(LAUNCH, 100)
    made.take(50)
    made.rates.new_meters(made.now_ns)
    for _ in range(40):
        made.call(LAUNCH, 100)
        made.row["passed"] += 100
        made.take(50)
    assert made.load().calls[LAUNCH] == pytest.approx(2000 * (1 + COST.passed_ns / COST.ns), rel=0.01)


def test_what_was_spent_is_known_by_process(made: Made) -> None:
    made.call(LAUNCH, 100)
    made.walk(5)
    made.take(50)
    assert made.rates.spent_ns == {PID: 100 * COST.ns + 5 * (COST.record_ns + 10_000)}
    made.take(50)
    assert made.rates.spent_ns == {}


def test_what_is_fitted_is_as_hard_as_every_process(made: Made) -> None:
    """One launches without end; another copies, and would never be the worst."""
    both = np.zeros(2, layout.THREAD_COST)
    both["pid"] = both["tid"] = TID, 200
    made.read = lambda: CounterReading(np.array([0, 1]), both.copy())  # type: ignore[method-assign]
    made.rates.skip(0)
    made.by_operation[LAUNCH], made.by_operation[COPY] = 5000, 1000
    made.take(50)
    made.rates.new_meters(made.now_ns)
    for _ in range(40):
        both["timed"][0][made.rates.meters[LAUNCH]] += np.uint32(5000)
        both["timed"][1][made.rates.meters[COPY]] += np.uint32(1000)
        made.take(50)
    assert made.load().calls == {
        LAUNCH: pytest.approx(100_000, rel=0.01),
        COPY: pytest.approx(20_000, rel=0.01),
    }


def test_counters_that_wrap_go_on(made: Made) -> None:
    made.row["timed"][0][0] = 2**32 - 50
    made.rates.skip(0)
    made.row["timed"][0][0] = 50
    made.take(100)
    assert made.load().others == pytest.approx(1000)


def test_a_reading_that_is_older_than_its_mark_shows_nothing(made: Made) -> None:
    older = made.read()
    made.call(LAUNCH, 100)
    assert not older.since(made.read()).any()


def test_a_thread_that_is_gone_is_forgotten(made: Made) -> None:
    made.call(LAUNCH, 100)
    made.take(50)
    assert made.rates.worst() is not None
    made.row["tid"] = 0
    made.row = made.row[:0]
    made.read = lambda: CounterReading(np.zeros(0, np.int64), np.zeros(0, layout.THREAD_COST))  # type: ignore[method-assign]
    made.take(50)
    assert made.rates.worst() is None
