from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ingero.clock import STEP_NS, Clock
from tests.builders import EPOCH_NS, SECOND, FakeTime


def test_monotonic_instants_map_to_the_epoch() -> None:
    clock = FakeTime().clock()
    assert clock.wall_ns(5 * SECOND) == EPOCH_NS + 5 * SECOND
    assert clock.wall_ns(np.array([0, 7], np.uint64)).tolist() == [EPOCH_NS, EPOCH_NS + 7]


def test_process_starts_map_from_boot_time() -> None:
    times = FakeTime()
    times.boot_ns = 100 * SECOND  # the machine slept for 100 s since boot
    assert times.clock().boot_to_wall(40 * SECOND) == EPOCH_NS - 60 * SECOND


def test_a_forward_step_counts_from_when_it_was_seen() -> None:
    times = FakeTime()
    clock = times.clock()
    times.advance(10 * SECOND)
    times.wall_ns += SECOND
    step = clock.observe()
    assert step is not None
    assert (step.delta_ns, step.adopted) == (SECOND, True)
    assert clock.wall_ns(9 * SECOND) == EPOCH_NS + 9 * SECOND
    assert clock.wall_ns(11 * SECOND) == EPOCH_NS + 12 * SECOND


def test_a_backward_step_is_noted_once_and_changes_nothing() -> None:
    times = FakeTime()
    clock = times.clock()
    times.wall_ns -= 3600 * SECOND
    step = clock.observe()
    assert step is not None
    assert not step.adopted
    times.advance(SECOND)
    assert clock.observe() is None
    assert clock.wall_ns(SECOND) == EPOCH_NS + SECOND
    assert len(clock.steps) == 1


def test_small_differences_are_no_steps() -> None:
    times = FakeTime()
    clock = times.clock()
    times.wall_ns += STEP_NS
    assert clock.observe() is None


def test_a_process_started_after_a_suspend_is_placed_after_it() -> None:
    times = FakeTime()
    clock = times.clock()
    times.advance(SECOND)
    times.wall_ns += 60 * SECOND  # asleep: monotonic time stands still
    times.boot_ns += 60 * SECOND
    clock.observe()
    times.advance(SECOND)
    assert clock.boot_to_wall(times.boot_ns) == clock.wall_ns(times.mono_ns)
    assert clock.boot_to_wall(0) == EPOCH_NS


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(-(10**12), 10**12)), max_size=20))
def test_later_stays_later_whatever_the_wall_clock_does(moves: list[tuple[int, int]]) -> None:
    times = FakeTime()
    clock = times.clock()
    instants = [0]
    for forward_ns, step_ns in moves:
        times.advance(forward_ns)
        times.wall_ns += step_ns
        clock.observe()
        instants += [times.mono_ns - 1, times.mono_ns, times.mono_ns + 1]
    ordered = np.array(sorted(max(i, 0) for i in instants), np.uint64)
    walls = clock.wall_ns(ordered)
    assert (np.diff(walls) >= 0).all()
    assert walls.tolist() == [clock.wall_ns(int(i)) for i in ordered]


def test_the_machines_own_clocks_agree() -> None:
    clock = Clock.now()
    assert abs(clock.now_ns - time.time_ns()) < SECOND
    assert abs(clock.boot_to_wall(time.clock_gettime_ns(time.CLOCK_BOOTTIME)) - time.time_ns()) < SECOND
