"""Time on a core while calls were not watched, divided as when they were."""

from __future__ import annotations

import numpy as np

from ingero.governor.seen import SeenTime, Watched
from ingero.governor.thread_time import ThreadEstimator
from ingero.model.layout import Bucket
from tests.builders import records, split, thread

MS = 1_000_000


def seen(gap: dict[str, int] | None = None, counted: int = 0, told: bool = True, **ns: int) -> SeenTime:
    spent = np.array(split(**ns), np.int64)
    return SeenTime(spent, np.array(split(**(gap or {})), np.int64), counted, spent * told)


def complete(row, *looks: SeenTime, hidden_ns: float = 0.0, blind: bool = False):
    rows = records(row)
    estimator = ThreadEstimator()
    for look in looks:
        watched = Watched(0.1, frozenset(), threads={100: look}, blind=blind)
        estimator.complete(rows, watched, 0, {100: hidden_ns})
    return rows[0]


def test_time_inside_unseen_calls_is_not_the_threads_own() -> None:
    """Half of the time on a core was in calls while it was looked at, and so it is all the time."""
    row = complete(thread(cuda_cpu=50 * MS, host_cpu=950 * MS), seen(cuda_cpu=50 * MS, host_cpu=50 * MS))
    assert row["ns"][Bucket.CUDA_CPU] == 500 * MS
    assert row["ns"].sum() == 1000 * MS
    assert row["estimated_ns"] == 450 * MS


def test_calls_that_were_only_counted_count_as_inside() -> None:
    row = complete(
        thread(cuda_cpu=10 * MS, host_cpu=90 * MS),
        seen(cuda_cpu=10 * MS, host_cpu=90 * MS, counted=10_000),
        hidden_ns=3000.0,
    )
    assert row["ns"][Bucket.CUDA_CPU] == 40 * MS


def test_waits_stay_as_they_are_and_gaps_follow_waits_of_the_same_kind() -> None:
    row = thread(cuda_cpu=10 * MS, host_cpu=90 * MS, peer_wait=800 * MS, disk_wait=100 * MS)
    found = complete(row, seen({"peer_wait": 60 * MS}, cuda_cpu=10 * MS, host_cpu=10 * MS, peer_wait=80 * MS))
    assert found["ns"][Bucket.PEER_WAIT] == 800 * MS
    assert found["gap"][Bucket.PEER_WAIT] == 600 * MS
    assert found["gap"][Bucket.DISK_WAIT] == 0  # never seen: nothing is said


def test_what_is_known_of_a_wait_without_looks_stays() -> None:
    """Longer than any look: they show nothing of it, the kernel side does."""
    row = thread(host_cpu=90 * MS, disk_wait=800 * MS, peer_wait=100 * MS)
    row["gap"][0][Bucket.DISK_WAIT] = 700 * MS
    row["gap"][0][Bucket.PEER_WAIT] = 20 * MS
    found = complete(row, seen({"peer_wait": 5 * MS}, host_cpu=10 * MS, peer_wait=10 * MS))
    assert found["gap"][Bucket.DISK_WAIT] == 700 * MS
    assert found["gap"][Bucket.PEER_WAIT] == 50 * MS  # and of short ones looks know more


def test_a_thread_that_was_not_seen_on_a_core_is_left_alone() -> None:
    row = complete(thread(cuda_cpu=0, host_cpu=500 * MS, sleep=500 * MS), seen(sleep=100 * MS))
    assert row["ns"][Bucket.HOST_CPU] == 500 * MS
    assert row["estimated_ns"] == 0


def test_several_windows_count_together() -> None:
    few = seen(cuda_cpu=30 * MS, host_cpu=30 * MS)
    none = seen(host_cpu=60 * MS)
    row = complete(thread(cuda_cpu=0, host_cpu=400 * MS), few, none)
    assert 0 < row["ns"][Bucket.CUDA_CPU] < 200 * MS


def test_a_window_between_two_looks_is_divided_as_the_last_ones() -> None:
    estimator = ThreadEstimator()
    look = seen({"peer_wait": 5 * MS}, cuda_cpu=50 * MS, host_cpu=50 * MS, peer_wait=10 * MS)
    estimator.complete(records(thread()), Watched(0.1, frozenset(), threads={100: look}), 0, {})
    rows = records(thread(host_cpu=800 * MS, peer_wait=200 * MS))
    estimator.complete(rows, Watched(0.0, frozenset(), threads={}), 0, {})
    assert rows[0]["ns"][Bucket.CUDA_CPU] == 400 * MS
    assert rows[0]["gap"][Bucket.PEER_WAIT] == 100 * MS
    gone = records(thread(tid=101))
    estimator.complete(gone, Watched(0.0, frozenset(), threads={}), 0, {})
    rows = records(thread(host_cpu=800 * MS))
    estimator.complete(rows, Watched(0.0, frozenset(), threads={}), 0, {})
    assert rows[0]["estimated_ns"] == 0  # of a thread that went nothing is kept


def test_a_look_within_a_long_stretch_of_work_says_nothing_of_the_gpu() -> None:
    estimator = ThreadEstimator()
    usual = seen({"host_cpu": 40 * MS}, cuda_cpu=50 * MS, host_cpu=50 * MS)
    amid = seen(told=False, host_cpu=200 * MS)
    rows = records(thread(host_cpu=900 * MS, cuda_cpu=100 * MS))
    estimator.complete(records(thread()), Watched(0.1, frozenset(), threads={100: usual}), 0, {})
    estimator.complete(rows, Watched(0.1, frozenset(), threads={100: amid}), 0, {})
    assert rows[0]["gap"][Bucket.HOST_CPU] == 720 * MS


def test_waits_for_the_gpu_that_nobody_saw_are_not_the_threads_own_time() -> None:
    """Spinning on a core: half of the time while it was watched, and so all the time."""
    row = thread(cuda_cpu=25 * MS, host_cpu=925 * MS, gpu_wait=50 * MS)
    found = complete(row, seen(cuda_cpu=25 * MS, host_cpu=25 * MS, gpu_wait=50 * MS), blind=True)
    assert found["ns"][Bucket.GPU_WAIT] == 500 * MS
    assert found["ns"][Bucket.CUDA_CPU] == found["ns"][Bucket.HOST_CPU] == 250 * MS
    assert found["ns"].sum() == 1000 * MS


def test_waits_for_the_gpu_that_block_are_no_sleep_where_nobody_saw_them() -> None:
    """Half of the time while it was watched; of the sleep that was seen then as much is left."""
    row = thread(cuda_cpu=100 * MS, host_cpu=100 * MS, gpu_wait=50 * MS, sleep=750 * MS)
    look = seen(cuda_cpu=10 * MS, host_cpu=10 * MS, gpu_wait=50 * MS, sleep=30 * MS)
    found = complete(row, look, blind=True)
    assert found["ns"][Bucket.GPU_WAIT] == 500 * MS
    assert found["ns"][Bucket.SLEEP] == 300 * MS
    assert found["ns"].sum() == 1000 * MS


def test_where_waits_are_always_watched_they_stay_as_they_are() -> None:
    row = thread(cuda_cpu=25 * MS, host_cpu=925 * MS, gpu_wait=50 * MS)
    found = complete(row, seen(cuda_cpu=25 * MS, host_cpu=25 * MS, gpu_wait=50 * MS))
    assert found["ns"][Bucket.GPU_WAIT] == 50 * MS
