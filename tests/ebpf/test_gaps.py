"""Time in which the GPU had nothing to do is told apart from time in which it had."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ingero.model.layout import Bucket
from tests.ebpf.accounts import MS, Performance, Stage, adds_up, stage
from tests.ebpf.test_accounting import first_and_last_core, hogs
from tests.ebpf.tracing import Tracer


@pytest.fixture(scope="module")
def acting(tracer: Tracer) -> Iterator[Stage]:
    with stage(tracer) as running:
        yield running


def gap_ns(played: Performance, bucket: Bucket) -> int:
    return int(played.rows["gap"][:, bucket].sum())


def test_only_sleep_with_nothing_given_is_a_gap(acting: Stage) -> None:
    played = acting.play("fed_then_idle", 10, 30, 20)
    adds_up(played)
    slept_ns = played.ns["sleep"]
    assert slept_ns >= 500 * MS
    # Both kinds of sleep overrun by the same noise: 20 ms of each 50 were idle.
    assert gap_ns(played, Bucket.SLEEP) == pytest.approx(0.4 * slept_ns, rel=0.1)
    assert gap_ns(played, Bucket.GPU_WAIT) < MS  # the runtime's way back from the driver


def test_an_event_at_the_end_of_all_work_leaves_the_gpu_idle(acting: Stage) -> None:
    played = acting.play("fed_then_idle_by_event", 10, 0)
    assert gap_ns(played, Bucket.SLEEP) == pytest.approx(played.ns["sleep"], rel=0.05)


def test_an_event_with_work_behind_it_does_not(acting: Stage) -> None:
    played = acting.play("fed_then_idle_by_event", 10, 1)
    assert gap_ns(played, Bucket.SLEEP) == 0


def test_a_gap_is_part_of_the_whole_in_every_window(acting: Stage) -> None:
    played = acting.play("fed_then_idle", 8, 5, 90, window_s=0.05)
    assert (played.rows["gap"] <= played.rows["ns"]).all()
    assert np.array_equal(played.totals[-1]["gap"], played.rows["gap"].sum(axis=0))


def test_a_thread_that_never_synchronised_has_no_gap(acting: Stage) -> None:
    played = acting.play("time_sleep", "0.1")
    assert played.rows["gap"].sum() == 0


def test_losing_the_core_when_the_gpu_is_done_is_told_apart(acting: Stage) -> None:
    _, core = first_and_last_core()
    alone = acting.play("gpu_spin", core, 400_000)
    with hogs(2, core):
        shared = acting.play("gpu_spin", core, 400_000)
    assert alone.rows["late_ns"].sum() < 10 * MS
    # One call: at most its last absence counts, however much of the wait it was off its core.
    away_ns = shared.ns["runqueue"]
    assert away_ns > 3 * int(shared.rows["late_ns"].sum())
