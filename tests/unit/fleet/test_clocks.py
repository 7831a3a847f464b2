"""Clocks of nodes compared: what is told lies within the bound that is told with it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingero.fleet.clocks import (
    Drift,
    Exchange,
    Offset,
    Step,
    better,
    drift_between,
    error_after,
    offset_of,
    stretches,
)

MS, SECOND = 1_000_000, 1_000_000_000
EPOCH_NS = 1_700_000_000 * SECOND
DELAYS = st.integers(0, 500 * MS)


def exchange(offset_ns: int, there_ns: int, back_ns: int, at_ns: int = EPOCH_NS) -> Exchange:
    """As it would be seen: the node's clock is read when the question arrived."""
    return Exchange(at_ns, at_ns + there_ns + offset_ns, at_ns + there_ns + back_ns)


@given(st.integers(-100 * SECOND, 100 * SECOND), st.lists(st.tuples(DELAYS, DELAYS), min_size=1, max_size=8))
def test_the_true_offset_is_within_the_error_however_unlike_the_ways_are(
    offset_ns: int, delays: list[tuple[int, int]]
) -> None:
    found = offset_of(exchange(offset_ns, there, back) for there, back in delays)
    if found is None:
        assert all(there + back == 0 for there, back in delays)
        return
    assert abs(found.offset_ns - offset_ns) <= found.error_ns


def test_the_exchange_with_the_least_delay_counts() -> None:
    slow, quick = exchange(80 * MS, 40 * MS, 0), exchange(80 * MS, 1 * MS, 1 * MS)
    found = offset_of([slow, quick, slow])
    assert found is not None
    assert (found.offset_ns, found.error_ns, found.exchanges) == (80 * MS, MS, 3)


def test_a_clock_of_ours_that_was_set_meanwhile_says_nothing() -> None:
    assert offset_of([Exchange(EPOCH_NS, EPOCH_NS, EPOCH_NS - SECOND)]) is None


def test_an_offset_within_its_error_moves_nothing() -> None:
    unsure = Offset(2 * MS, 3 * MS, EPOCH_NS, 3)
    assert (unsure.shift_ns, unsure.left_ns) == (0, 5 * MS)
    sure = Offset(80 * MS, 3 * MS, EPOCH_NS, 3)
    assert (sure.shift_ns, sure.left_ns) == (-80 * MS, 3 * MS)


def test_drift_is_what_the_offset_changed_in_the_time_between() -> None:
    first, last = Offset(0, MS, EPOCH_NS, 3), Offset(40 * MS, MS, EPOCH_NS + 100 * SECOND, 3)
    drift = drift_between(first, last)
    assert drift == Drift(400e-6, 20e-6)
    assert drift is not None
    assert drift.certain
    assert error_after(last, drift, 3600 * SECOND) == MS + 1_512_000_000
    assert drift_between(last, first) is None
    assert not Drift(1e-6, 2e-6).certain


def test_the_better_of_two_offsets_has_the_smaller_error() -> None:
    assert better([None, Offset(5, 9, 0, 3), Offset(7, 3, 0, 3)]) == Offset(7, 3, 0, 3)
    assert better([None]) is None


def test_a_recording_without_steps_is_moved_by_the_offset_alone() -> None:
    (only,) = stretches([], Offset(80 * MS, MS, EPOCH_NS, 3))
    assert only.shift_ns == -80 * MS
    assert [each.shift_ns for each in stretches([], None)] == [0]


def test_times_before_the_clock_was_set_right_are_moved_by_the_step() -> None:
    """Behind until it was set: there is no offset now, and what came before lacks five seconds."""
    before, after = stretches([Step(EPOCH_NS, 5 * SECOND, True)], Offset(0, MS, EPOCH_NS, 3))
    assert (before.from_ns, before.shift_ns) == (0, 5 * SECOND)
    assert (after.from_ns, after.shift_ns) == (EPOCH_NS, 0)


def test_a_step_back_that_the_recording_did_not_follow_moves_everything() -> None:
    found = stretches([Step(EPOCH_NS, -5 * SECOND, False)], Offset(0, MS, EPOCH_NS, 3))
    assert [each.shift_ns for each in found] == [-5 * SECOND, -5 * SECOND]


@given(
    st.integers(-5 * SECOND, 5 * SECOND),
    st.lists(st.tuples(st.integers(1, 1000), st.integers(-3 * SECOND, 3 * SECOND)), max_size=5),
)
def test_moved_times_are_as_far_apart_as_the_instants_were(
    offset_ns: int, moves: list[tuple[int, int]]
) -> None:
    """The recording's mapping played through: after moving, every instant is by one clock."""
    wall = mapped = 0
    at, steps, seen = 0, [], []
    for wait_s, delta_ns in [*moves, (1, 0)]:
        at += wait_s * SECOND
        seen.append((at - 1, EPOCH_NS + at - 1 + mapped))
        if not delta_ns:
            continue
        wall += delta_ns
        adopted = wall > mapped
        mapped = wall if adopted else mapped
        steps.append(Step(EPOCH_NS + at + mapped, delta_ns, adopted))
    found = stretches(steps, Offset(offset_ns, 0, EPOCH_NS, 3))
    moved = {
        true - (recorded + next(s.shift_ns for s in reversed(found) if s.from_ns <= recorded))
        for true, recorded in seen
    }
    assert len(moved) == 1
