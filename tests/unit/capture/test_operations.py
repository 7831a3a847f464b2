"""Counters that only grow, shared among a process's threads, as one row for each second they grew in."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingero.capture.operations import OperationBook
from ingero.model import layout
from ingero.model.histogram import slot_of
from ingero.model.window import Records

WINDOW = 7
SINCE_NS = WINDOW << 30


class Counters:
    """The kernel's side of it."""

    def __init__(self) -> None:
        self.book = OperationBook(-1)
        self.values: dict[tuple[int, int, int, int], Records] = {}

    def call(self, took_ns: int, pid: int = 1, op: int = 3, caller: int = 0, share: int = 0) -> None:
        key = (pid, op, caller, share)
        if key not in self.values:
            self.values[key] = np.zeros(1, layout.OP_STATS)
        value = self.values[key][0]
        value["count"] += 1
        value["sum_ns"] += took_ns
        value["split"][0] += took_ns
        value["slots"][slot_of([took_ns])[0]] += 1
        value["unsampled"] += 1
        extreme = value["extreme"][WINDOW & 1]
        known = extreme["window"] == WINDOW
        extreme["min_ns"] = min(int(extreme["min_ns"]), took_ns) if known else took_ns
        extreme["max_ns"] = max(int(extreme["max_ns"]), took_ns) if known else took_ns
        extreme["window"] = WINDOW

    def read(self, reverse: bool = False) -> Records:
        places = sorted(self.values, reverse=reverse)
        keys = np.array(places, layout.OP_KEY)
        return self.book.differences(keys, np.concatenate([self.values[place] for place in places]), SINCE_NS)


def test_threads_that_share_counters_differently_are_one_row() -> None:
    counters = Counters()
    for share, took_ns in enumerate((500, 9000, 70, 1200)):
        counters.call(took_ns, share=share)
    [row] = counters.read()
    assert (row["count"], row["sum_ns"], row["min_ns"], row["max_ns"]) == (4, 10770, 70, 9000)
    assert row["slots"].sum() == 4
    assert row["split"].sum() == 10770


def test_only_what_grew_since_the_last_reading_is_told() -> None:
    counters = Counters()
    counters.call(100, pid=1)
    counters.call(100, pid=2)
    assert len(counters.read()) == 2
    assert len(counters.read()) == 0
    counters.call(300, pid=2)
    [row] = counters.read(reverse=True)
    assert (row["pid"], row["count"], row["sum_ns"]) == (2, 1, 300)
    assert counters.book.calls == 3


def test_counters_that_come_between_others_leave_those_as_they_are() -> None:
    counters = Counters()
    counters.call(100, pid=1)
    counters.call(100, pid=3)
    counters.read()
    counters.call(200, pid=2)
    [row] = counters.read()
    assert (row["pid"], row["count"]) == (2, 1)


def test_callers_are_told_apart_and_shares_are_not() -> None:
    counters = Counters()
    for caller in (1, 2):
        for share in (0, 5):
            counters.call(100, caller=caller, share=share)
    rows = counters.read()
    assert sorted((int(row["caller"]), int(row["count"])) for row in rows) == [(1, 2), (2, 2)]


def test_calls_no_record_stands_for_are_told_of_the_processes_asked_about() -> None:
    counters = Counters()
    counters.call(100, pid=1, share=1)
    counters.call(100, pid=2, share=2)
    counters.read()
    assert counters.book.unsampled({2})["calls"].sum() == 1
    assert counters.book.unsampled()["calls"].sum() == 2


@given(
    st.lists(
        st.lists(st.tuples(st.integers(64, 1 << 40), st.integers(1, 3), st.integers(0, 7)), max_size=8),
        max_size=5,
    )
)
@example([[(64, 1, 0)], [(491520, 1, 0), (491521, 1, 1)]])
@settings(deadline=None)
def test_whatever_order_they_come_in_every_call_is_told_once(
    readings: list[list[tuple[int, int, int]]],
) -> None:
    counters = Counters()
    told = spent_ns = 0
    for reading in readings:
        for took_ns, pid, share in reading:
            counters.call(took_ns, pid=pid, share=share)
        if not counters.values:
            continue
        rows = counters.read()
        assert all(
            row["min_ns"] * row["count"] <= row["sum_ns"] <= (row["max_ns"] + 1) * row["count"]
            for row in rows
        )
        told += int(rows["count"].sum())
        spent_ns += int(rows["sum_ns"].sum())
    made = [call for reading in readings for call in reading]
    assert told == len(made)
    assert spent_ns == sum(took_ns for took_ns, _, _ in made)
