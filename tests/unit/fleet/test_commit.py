"""A batch is acknowledged when it is in the store, not before; one that comes again is not stored again."""

from __future__ import annotations

import threading

import pytest

from ingero.errors import StoreError
from ingero.fleet.collector import commit
from ingero.fleet.collector.commit import Busy, Committer, Seen
from ingero.fleet.collector.tables import COLUMNS, Rows
from tests.unit.fleet.rounds import finding, health


class Store:
    def __init__(self) -> None:
        self.rows: list[Rows] = []
        self.fails = False
        self.tries = 0
        self.bad: set[str] = set()  # nodes whose rows it does not take
        self.entered, self.may_go = threading.Event(), threading.Event()
        self.may_go.set()

    def insert(self, rows: Rows) -> None:
        self.entered.set()
        assert self.may_go.wait(10)
        self.tries += 1
        if self.fails:
            raise StoreError("the disk is full")
        if self.bad & {row[1] for row in rows.get("node_rounds", [])}:
            raise OverflowError("a number does not fit")
        self.rows.append(rows)

    def count(self, table: str) -> int:
        return sum(len(each.get(table, ())) for each in self.rows)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def committer(store: Store) -> Committer:
    return Committer(store, linger_s=0.0, now_ns=lambda: 5_000_000)


def test_nobody_is_told_before_the_rows_are_stored(store: Store, committer: Committer) -> None:
    store.may_go.clear()
    committer.start()
    future = committer.submit("metrics", [health()])
    assert store.entered.wait(10)
    assert not future.done()
    store.may_go.set()
    assert future.result(10) == 1
    assert store.count("node_rounds") == store.count("job_rounds") == store.count("gpu_rounds") == 1
    committer.stop()


def test_what_came_meanwhile_goes_into_the_next_insert_together(store: Store, committer: Committer) -> None:
    store.may_go.clear()
    committer.start()
    first = committer.submit("metrics", [health("n0")])
    assert store.entered.wait(10)
    later = [committer.submit("metrics", [health(f"n{at}")]) for at in range(1, 6)]
    later.append(committer.submit("logs", [health("n9", findings=[finding()])]))
    store.may_go.set()
    assert [each.result(10) for each in (first, *later)] == [1] * 7
    assert [len(each["node_rounds"]) for each in store.rows] == [1, 5]
    assert store.count("findings") == 1
    committer.stop()


def test_a_store_that_fails_is_told_to_everybody_and_nothing_counts_as_stored(
    store: Store, committer: Committer
) -> None:
    store.fails = True
    committer.start()
    future = committer.submit("metrics", [health()])
    with pytest.raises(StoreError):
        future.result(10)
    store.fails = False
    assert committer.submit("metrics", [health()]).result(10) == 1
    assert store.count("node_rounds") == 1
    assert (committer.counts.failures, committer.counts.batches) == (1, 1)
    committer.stop()


@pytest.mark.parametrize("bad", [{"n0"}, {"n31"}, {"n63"}, {"n5", "n40"}])
def test_rows_the_store_does_not_take_fail_their_own_request_and_no_other(
    store: Store, committer: Committer, bad: set[str]
) -> None:
    store.bad = bad
    futures = {f"n{at}": committer.submit("metrics", [health(f"n{at}")]) for at in range(64)}
    committer.start()
    failed = {node for node, each in futures.items() if each.exception(10) is not None}
    assert failed == bad
    assert store.count("node_rounds") == 64 - len(bad)
    committer.stop()


def test_a_store_that_is_away_is_not_tried_for_each_request(store: Store, committer: Committer) -> None:
    store.fails = True
    futures = [committer.submit("metrics", [health(f"n{at}")]) for at in range(1000)]
    committer.start()
    assert all(isinstance(each.exception(10), StoreError) for each in futures)
    assert store.tries < 20
    committer.stop()


def test_a_batch_that_comes_again_is_taken_and_not_stored_again(store: Store, committer: Committer) -> None:
    committer.start()
    for _ in range(3):
        assert committer.submit("metrics", [health(number=4)]).result(10) == 1
    assert store.count("node_rounds") == 1
    assert committer.counts.again == 2
    committer.stop()


def test_too_much_is_refused_rather_than_kept(
    store: Store, committer: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "WAITING", 2)
    committer.submit("metrics", [health("a"), health("b")])
    with pytest.raises(Busy):
        committer.submit("metrics", [health("c")])
    committer.start()
    committer.stop()
    assert store.count("node_rounds") == 2  # what was taken over is written at the end


def test_numbers_may_come_in_any_order_and_other_runs_are_other_batches() -> None:
    seen = Seen()
    for number in (5, 3, 70):
        assert not seen.has("metrics", health(number=number))
        seen.add("metrics", health(number=number))
    assert seen.has("metrics", health(number=70))
    assert not seen.has("metrics", health(number=5))  # too long ago to be remembered: the store knows
    assert not seen.has("metrics", health(number=69))
    assert not seen.has("logs", health(number=70))
    assert not seen.has("metrics", health(number=70, run="f" * 16))
    seen.add("metrics", health(number=68))
    assert seen.has("metrics", health(number=68))
    assert seen.has("metrics", health(number=70))


def test_the_memory_for_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "REMEMBERED", 10)
    seen = Seen()
    for at in range(50):
        seen.add("metrics", health(f"n{at}"))
    assert len(seen._known) == 10


def test_rows_have_their_columns(store: Store, committer: Committer) -> None:
    committer.start()
    committer.submit("metrics", [health()]).result(10)
    committer.submit("logs", [health(findings=[finding()])]).result(10)
    committer.stop()
    for rows in store.rows:
        for table, each in rows.items():
            assert {len(row) for row in each} <= {len(COLUMNS[table])}


def test_a_request_that_is_given_up_takes_nobody_with_it(store: Store, committer: Committer) -> None:
    """Its time is over while the store is slow: the thread that writes lives on, what was taken is stored."""
    store.may_go.clear()
    committer.start()
    given_up = committer.submit("metrics", [health("n0")])
    assert store.entered.wait(10)
    assert not given_up.cancel()
    waiting = committer.submit("metrics", [health("n1")])
    assert not waiting.cancel()
    store.may_go.set()
    assert committer.submit("metrics", [health("n2")]).result(10) == 1
    assert store.count("node_rounds") == 3
    committer.stop()
