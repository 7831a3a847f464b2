"""The arithmetic of accounting, on any intervals: nothing is counted twice, nothing gets lost."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero.model.layout import Bucket
from ingero.store.foreign.accounting import Spans, account, classify, inside, spread

MS = 1_000_000
SECOND = 1_000_000_000
INTERVALS = st.lists(st.tuples(st.integers(0, 4 * SECOND), st.integers(1, SECOND)), max_size=12)


def spans(rows: list[tuple[int, int]]) -> Spans:
    pairs = np.array(rows, np.int64).reshape(-1, 2)
    return Spans.of(pairs[:, 0], pairs[:, 1])


def covered(rows: list[tuple[int, int]]) -> int:
    """How long any of them lasts, counted the plain way."""
    total, reached = 0, 0
    for start, length in sorted(rows):
        total += max(0, start + length - max(start, reached))
        reached = max(reached, start + length)
    return total


@settings(max_examples=60, deadline=None)
@given(INTERVALS, INTERVALS, INTERVALS)
def test_every_nanosecond_is_in_one_bucket(
    off: list[tuple[int, int]], calls: list[tuple[int, int]], syncs: list[tuple[int, int]]
) -> None:
    away = spans(off)
    bucket = np.full(len(off), int(Bucket.UNEXPLAINED), np.int64)
    found = account(away, bucket, spans(calls), spans(syncs))
    rows = off + calls + syncs
    whole = max((s + n for s, n in rows), default=0) - min((s for s, _ in rows), default=0)
    assert found.ns.sum() == whole
    assert (found.ns.sum(axis=1) <= SECOND).all()
    assert found.ns[:, int(Bucket.UNEXPLAINED)].sum() == covered(off)


@settings(max_examples=60, deadline=None)
@given(INTERVALS, st.integers(0, 4 * SECOND), st.integers(0, SECOND))
def test_what_lies_inside_an_interval_is_what_it_shares(
    rows: list[tuple[int, int]], start: int, ns: int
) -> None:
    end = start + ns
    clipped = [(max(s, start), min(s + n, end) - max(s, start)) for s, n in rows]
    expected = covered([(s, n) for s, n in clipped if n > 0])
    assert inside(spans(rows).merged(), np.array([start]), np.array([end])).tolist() == [expected]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, SECOND), max_size=20), st.integers(-5, 30 * SECOND))
def test_spreading_fills_no_second_beyond_its_room(room: list[int], total: int) -> None:
    rooms = np.array(room, np.int64)
    moved = spread(total, rooms)
    assert (moved >= 0).all()
    assert (moved <= rooms).all()
    assert abs(int(moved.sum()) - min(max(total, 0), sum(room))) <= len(room)


def test_one_read_explains_one_wait() -> None:
    start = np.array([0, 20_000], np.int64)
    took = np.array([MS, MS], np.int64)
    found = classify(start, took, start[:1], took[:1])
    assert sorted(found.tolist()) == [int(Bucket.DISK_WAIT), int(Bucket.UNEXPLAINED)]


def test_seven_alike_are_not_yet_a_timer_and_a_minority_never_is() -> None:
    alike = [50 * MS + 60_000] * 7
    none = np.zeros(0, np.int64)
    for lengths in (alike, [*alike, 51 * MS + 600_000, 700 * MS + 300_000]):
        took = np.array(lengths, np.int64)
        found = classify(np.arange(len(took)) * SECOND, took, none, none)
        assert set(found.tolist()) == {int(Bucket.UNEXPLAINED)}
