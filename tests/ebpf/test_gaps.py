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
    for start in np.unique(played.rows["window_ns"]):  # a gap may be told a window later
        mine = played.rows[played.rows["window_ns"] == start]
        assert (mine["gap"].sum(axis=0) <= mine["ns"].sum(axis=0)).all()
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


def test_a_wait_that_the_gpu_outlasts_costs_nothing(acting: Stage) -> None:
    """All was given: 20 ms of waiting for somebody lie within 60 ms of the GPU's."""
    played = acting.play("fed_then_waits", 5, 60, 20, 0)
    assert played.ns["peer_wait"] > 60 * MS
    assert gap_ns(played, Bucket.PEER_WAIT) < 0.1 * played.ns["peer_wait"]


def test_a_wait_that_outlasts_the_gpu_costs_the_rest(acting: Stage) -> None:
    """After a first round that tells what is usual: 10 ms of the GPU's in 50 ms of waiting."""
    acting.play("fed_then_waits", 3, 10, 1, 0)
    played = acting.play("fed_then_waits", 5, 10, 50, 1)
    assert gap_ns(played, Bucket.PEER_WAIT) > 0.6 * played.ns["peer_wait"]


def test_with_work_ahead_a_wait_costs_what_exceeds_the_usual_one(acting: Stage) -> None:
    """The GPU has 10 ms more when 200 ms of waiting begin."""
    played = acting.play("lagged_then_waits", 20, 200)
    assert played.ns["peer_wait"] > 190 * MS
    assert gap_ns(played, Bucket.PEER_WAIT) > 0.8 * played.ns["peer_wait"]


def test_of_a_spinning_wait_among_others_the_part_after_the_gpu_was_done_is_late(acting: Stage) -> None:
    """The time lost is what the rounds took beyond the GPU's 8 ms each; it need not be known exactly."""
    _, core = first_and_last_core()
    with hogs(2, core):
        played = acting.play("gpu_rounds", core, 60, 8000)
    lost_ns = played.said["took_ns"] - 60 * 8 * MS
    assert int(played.rows["late_ns"].sum()) == pytest.approx(lost_ns, rel=0.5)


def test_a_copy_to_the_host_that_was_woken_copies(acting: Stage) -> None:
    """30 ms of the GPU's, then 120 MiB at 6 GB/s."""
    woken, spinning = (acting.play("read_back", 30_000, 120, patience) for patience in (4, 1))
    for played in (woken, spinning):
        adds_up(played)
        assert played.ns["gpu_wait"] > 25 * MS
    assert woken.ns["cuda_cpu"] > 15 * MS
    assert spinning.ns["cuda_cpu"] < 0.5 * woken.ns["cuda_cpu"]


def test_naps_between_two_looks_at_the_gpu_are_waits_for_it(acting: Stage) -> None:
    """40 ms of the GPU's and 20 ms of nothing, ten times."""
    played = acting.play("polled", 10, 40, 20)
    adds_up(played)
    assert played.ns["gpu_wait"] > 300 * MS
    assert 200 * MS <= played.ns["sleep"] < 300 * MS
    assert gap_ns(played, Bucket.SLEEP) == pytest.approx(played.ns["sleep"], rel=0.15)


def test_who_only_looks_at_the_work_of_others_does_not_wait_for_it(acting: Stage) -> None:
    played = acting.play("watched_event", "0.3")
    assert played.ns["gpu_wait"] < 10 * MS
    assert played.ns["sleep"] > 100 * MS
