"""The book of thread times against a thread whose every nanosecond is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero.capture.threads import COUNTS, HELD_WINDOWS, ThreadBook, repay_told_twice
from ingero.model import layout
from ingero.model.layout import Bucket, HeaderFlag
from ingero.model.window import BUCKETS, Records

POLLS = (Bucket.SLEEP, Bucket.PEER_WAIT, Bucket.NET_WAIT)
BORN_NS = 1_000


@dataclass(frozen=True)
class Interval:
    bucket: Bucket
    ns: int
    poll: bool  # what it is shows only at its end


def reading(tid: int, now_ns: int, acc: list[int], **more: object) -> Records:
    record = np.zeros(1, layout.THREAD_TOTALS)
    record["h"]["pid"], record["h"]["tid"], record["h"]["start_ns"] = 7, tid, BORN_NS
    record["h"]["comm"] = b"python"
    record["now_ns"], record["acc"] = now_ns, acc
    for name, value in more.items():
        record[name] = value
    return record


def kernel_side(life: list[Interval], now_ns: int, seen_ns: list[int], tid: int = 7) -> Records:
    """What the kernel would tell at this moment, having been read at those before it."""
    acc, at, spanned = [0] * BUCKETS, BORN_NS, 0
    for each in life:
        end = at + each.ns
        if now_ns < end:
            open_ns = now_ns - at
            if not each.poll:
                acc[each.bucket] += open_ns
            return reading(tid, now_ns, acc, open_ns=open_ns, undecided=each.poll, spanned_bucket=spanned)
        acc[each.bucket] += each.ns
        if each.poll and any(at <= seen < end for seen in seen_ns):
            spanned = each.bucket
        at = end
    return reading(tid, at, acc, dead=1, spanned_bucket=spanned)


def truth(life: list[Interval], start_ns: int, end_ns: int) -> list[int]:
    """Where the time between two instants really went."""
    ns, at = [0] * BUCKETS, BORN_NS
    for each in life:
        ns[each.bucket] += max(0, min(at + each.ns, end_ns) - max(at, start_ns))
        at += each.ns
    return ns


@st.composite
def lives(draw: st.DrawFn) -> list[Interval]:
    """No two polls in a row without anything between: the thread ran, if only for a moment."""
    life = []
    for _ in range(draw(st.integers(1, 12))):
        poll = draw(st.booleans())
        bucket = draw(st.sampled_from(POLLS) if poll else st.sampled_from(list(Bucket)[:BUCKETS]))
        life.append(Interval(bucket, draw(st.integers(1, 500)), poll))
        life.append(Interval(Bucket.HOST_CPU, draw(st.integers(1, 50)), False))
    return life


@given(lives(), st.lists(st.integers(1, 400), min_size=1, max_size=20))
@settings(max_examples=300, deadline=None)
def test_every_window_holds_what_happened_in_it_however_late_it_was_told(
    life: list[Interval], steps: list[int]
) -> None:
    book, rows, windows, seen = ThreadBook(), [], [], []
    at, end = BORN_NS, BORN_NS + sum(each.ns for each in life)
    for step in [*steps, end]:
        told = kernel_side(life, at + step, seen)
        rows.append(book.update(told, at))
        now_ns = int(told["now_ns"][0])
        windows.append((at, now_ns))
        if told["dead"][0]:
            break
        seen.append(now_ns)
        at = now_ns
    everything = np.concatenate(rows)
    for start_ns, end_ns in windows:
        mine = everything[everything["window_ns"] == start_ns]["ns"].sum(axis=0)
        assert int(mine.sum()) == end_ns - start_ns
        assert mine.tolist() == truth(life, start_ns, end_ns)
    assert len(book.finish()) == 0


@given(lives(), st.lists(st.integers(1, 300), min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_a_trace_that_ends_first_tells_open_polls_as_sleep_and_still_adds_up(
    life: list[Interval], steps: list[int]
) -> None:
    book, rows, seen, at = ThreadBook(), [], [], BORN_NS
    for step in steps:
        told = kernel_side(life, at + step, seen)
        rows.append(book.update(told, at))
        at = int(told["now_ns"][0])
        seen.append(at)
        if told["dead"][0]:
            break
    everything = np.concatenate([*rows, book.finish()])
    assert int(everything["ns"].sum()) == at - BORN_NS


@given(st.lists(st.integers(-1000, 1000), min_size=BUCKETS, max_size=BUCKETS))
def test_what_was_told_too_much_of_one_bucket_is_taken_from_the_others(change: list[int]) -> None:
    others = [3] * BUCKETS
    rows = np.array([others, change, others], np.int64)
    repay_told_twice(rows)
    assert rows.min() >= 0
    assert rows[1].sum() == max(sum(change), 0)
    assert rows[[0, 2]].tolist() == [others, others]


def acc(**ns: int) -> list[int]:
    return [ns.get(bucket.name.lower(), 0) for bucket in list(Bucket)[:BUCKETS]]


def test_a_thread_caught_between_two_states_is_not_counted_twice() -> None:
    book = ThreadBook()
    book.update(reading(7, BORN_NS + 900, acc(disk_wait=900)), BORN_NS)
    rows = book.update(reading(7, BORN_NS + 1900, acc(lock_wait=1900)), BORN_NS + 900)
    assert int(rows["ns"].sum()) == 1000


def test_counts_are_told_as_differences_and_a_feeder_stays_one() -> None:
    book = ThreadBook()
    first = reading(7, BORN_NS + 10, acc(host_cpu=10), minor_faults=5)
    first["h"]["flags"] = HeaderFlag.H_FEEDER
    assert book.update(first, BORN_NS)["minor_faults"].tolist() == [5]
    [row] = book.update(reading(7, BORN_NS + 20, acc(host_cpu=20), minor_faults=8), BORN_NS + 10)
    assert row["minor_faults"] == 3
    assert row["feeder"]
    assert row["comm"] == b"python"
    assert all(row[name] == 0 for name in COUNTS if name != "minor_faults")


def test_a_thread_whose_end_was_lost_is_forgotten_and_its_open_poll_is_unexplained() -> None:
    book = ThreadBook()
    book.update(reading(7, BORN_NS + 100, acc(), open_ns=100, undecided=1), BORN_NS)
    rows = book.update(reading(8, BORN_NS + 200, acc(host_cpu=200)), BORN_NS + 100)
    [lost] = rows[rows["tid"] == 7]
    assert lost["ns"].tolist() == acc(unexplained=100)
    assert lost["window_ns"] == BORN_NS
    assert len(book.finish()) == 0


def test_a_poll_of_days_is_held_back_for_a_minute_only_and_was_sleep_until_then() -> None:
    book, second = ThreadBook(), 1_000
    rows = [
        book.update(
            reading(7, BORN_NS + (at + 1) * second, acc(), open_ns=(at + 1) * second, undecided=1),
            BORN_NS + at * second,
        )
        for at in range(HELD_WINDOWS + 20)
    ]
    early = np.concatenate(rows)
    assert early["ns"].sum(axis=0).tolist() == acc(sleep=20 * second)
    lasted = (HELD_WINDOWS + 20) * second + 400
    ended = reading(7, BORN_NS + lasted, acc(net_wait=lasted), spanned_bucket=Bucket.NET_WAIT)
    late = book.update(ended, BORN_NS + lasted - 400)
    assert late["ns"].sum(axis=0).tolist() == acc(net_wait=HELD_WINDOWS * second + 400)
    by_window = np.concatenate([early, late])["window_ns"]
    assert len(set(by_window.tolist())) == len(by_window) == HELD_WINDOWS + 21


def test_thousands_of_threads_are_told_each_its_own_time() -> None:
    book = ThreadBook()
    many = np.concatenate([reading(tid, BORN_NS + 100, acc(host_cpu=tid)) for tid in range(1, 2001)])
    rows = book.update(many, BORN_NS)
    assert rows["ns"][:, Bucket.HOST_CPU].tolist() == rows["tid"].tolist() == list(range(1, 2001))


def test_the_same_tid_again_is_another_thread() -> None:
    book = ThreadBook()
    book.update(reading(7, BORN_NS + 100, acc(sleep=100), dead=1), BORN_NS)
    again = reading(7, BORN_NS + 200, acc(host_cpu=50))
    again["h"]["start_ns"] = BORN_NS + 150
    [row] = book.update(again, BORN_NS + 100)
    assert row["ns"].tolist() == acc(host_cpu=50)


def test_a_wait_told_as_a_gap_when_it_is_over_is_one_in_the_window_before_too() -> None:
    book = ThreadBook()
    waited = [0] * BUCKETS
    waited[Bucket.PEER_WAIT], waited[Bucket.HOST_CPU] = 700, 300
    rows = [book.update(reading(7, BORN_NS + 1000, waited), BORN_NS)]
    waited[Bucket.PEER_WAIT], waited[Bucket.HOST_CPU] = 1200, 800
    gap = [0] * BUCKETS
    gap[Bucket.PEER_WAIT] = 1500  # more than there is room for in both
    rows.append(book.update(reading(7, BORN_NS + 2000, waited, gap=gap), BORN_NS + 1000))
    everything = np.concatenate(rows)
    by_window = {
        start: everything[everything["window_ns"] == start]["gap"][:, Bucket.PEER_WAIT].sum()
        for start in (BORN_NS, BORN_NS + 1000)
    }
    assert by_window == {BORN_NS: 700, BORN_NS + 1000: 500}
    assert everything["ns"].sum() == 2000
