"""Time adds up: on a core, waiting for one, waiting for the GPU, and window by window."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ingero.model.layout import Bucket
from tests.ebpf.accounts import MS, Stage, adds_up, agrees, stage
from tests.ebpf.tracing import NAMES, Tracer

CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
HOG = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'hog', 0, 0, 0)\nwhile True: pass"


@pytest.fixture(scope="module")
def acting(tracer: Tracer) -> Iterator[Stage]:
    with stage(tracer) as running:
        yield running


def first_and_last_core() -> tuple[int, int]:
    cores = sorted(os.sched_getaffinity(0))
    return cores[0], cores[-1]


@contextmanager
def hogs(count: int, core: int) -> Iterator[set[int]]:
    """Processes that never give a core back by themselves; their pids."""
    running = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(count)]
    try:
        for hog in running:
            os.sched_setaffinity(hog.pid, {core})
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{hog.pid}/comm").read_text() != "hog\n" for hog in running):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield {hog.pid for hog in running}
    finally:
        for hog in running:
            hog.kill()
            hog.wait()


@pytest.mark.parametrize(
    "act, words", [("spin_on", ("1.0",)), ("doze_on", ("60",))], ids=["spinning", "dozing"]
)
def test_contention_is_runqueue_as_the_kernel_counts_it_and_names_those_who_ran(
    acting: Stage, act: str, words: tuple[str, ...]
) -> None:
    _, core = first_and_last_core()
    with hogs(2, core) as culprits:
        played = acting.play(act, core, *words)
    adds_up(played)
    waited_ns = played.ns["runqueue"]
    assert waited_ns > 0.3 * played.wall_ns
    assert abs(waited_ns - played.said["run_delay_ns"]) < 0.02 * played.said["run_delay_ns"]
    blamed = played.culprits
    assert (blamed["pid"] > 0).all()
    assert not blamed["throttled"].any()
    # Each core remembers the last 32 turns; on a busy machine a few are older.
    assert 0.8 * waited_ns < int(blamed["ns"].sum()) <= waited_ns
    theirs = blamed[np.isin(blamed["pid"], list(culprits))]
    assert set(theirs["pid"].tolist()) == culprits
    assert set(theirs["comm"].tolist()) == {b"hog"}
    assert int(theirs["ns"].sum()) > 0.25 * waited_ns  # others may be about; each has at most its share


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_who_runs_on_another_core_takes_nothing_from_us(acting: Stage) -> None:
    other, core = first_and_last_core()
    with hogs(1, other) as elsewhere, hogs(1, core) as here:
        played = acting.play("spin_on", core, "0.5")
    adds_up(played)
    theirs_ns = played.culprits["ns"]
    blamed_here_ns = int(theirs_ns[np.isin(played.culprits["pid"], list(here))].sum())
    assert blamed_here_ns > 0.1 * played.ns["runqueue"]
    # The thread may begin on the other core, behind the other hog, before it moves over.
    assert int(theirs_ns[np.isin(played.culprits["pid"], list(elsewhere))].sum()) < 0.1 * blamed_here_ns


@contextmanager
def quota(share: float) -> Iterator[Path]:
    """A group that may use this share of one core."""
    group = CPU_GROUPS / "ingero-quota"
    if not (CPU_GROUPS / "cpu.cfs_quota_us").exists() and not (CPU_GROUPS / "cpu.shares").exists():
        pytest.skip("no cgroup v1 cpu controller: threads cannot be given a quota of their own")
    group.mkdir(exist_ok=True)
    try:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text(str(int(share * 100000)))
        yield group
    finally:
        deadline = time.monotonic() + 10
        while (group / "tasks").read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        group.rmdir()


def throttled_ns(group: Path) -> int:
    stat = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(stat["throttled_time"])


def test_a_cpu_quota_is_runqueue_and_nobodys_fault(acting: Stage) -> None:
    with quota(0.2) as group:
        played = acting.play("spin_in_group", group / "tasks", "1.5")
        told_ns = throttled_ns(group)
    adds_up(played)
    assert told_ns > 500 * MS
    accounted_ns = int(played.rows["throttled_ns"].sum())
    # The group is out of quota a moment before its thread is: that one may have lost its core to others.
    assert abs(accounted_ns - told_ns) < 0.15 * told_ns
    assert accounted_ns <= played.ns["runqueue"]
    quota_rows = played.culprits[played.culprits["throttled"] > 0]
    assert set(quota_rows["pid"].tolist()) == {0}
    assert int(quota_rows["ns"].sum()) == accounted_ns
    others_ns = int(played.culprits[played.culprits["throttled"] == 0]["ns"].sum())
    assert others_ns <= played.ns["runqueue"] - accounted_ns


# --- the GPU ----------------------------------------------------------------------------------


def sync_call(played: object, name: str) -> np.void:
    calls = played.calls  # type: ignore[attr-defined]
    [found] = [row for row in calls if NAMES[int(row["op"])] == name and not row["flags"] & 1]
    return found


def test_a_synchronising_call_that_spins_waits_for_the_gpu_on_its_core(acting: Stage) -> None:
    played = acting.play("gpu_spin", "any", 200_000)
    adds_up(played)
    call = sync_call(played, "cudaStreamSynchronize")
    assert int(call["split"].sum()) == int(call["duration_ns"])
    assert int(call["duration_ns"]) > 190 * MS
    in_gpu_wait = int(call["split"][Bucket.GPU_WAIT])
    assert in_gpu_wait + int(call["split"][Bucket.RUNQUEUE]) > 0.99 * int(call["duration_ns"])
    assert played.ns["gpu_wait"] >= in_gpu_wait
    assert played.ns["sleep"] + played.ns["lock_wait"] < MS


def test_a_synchronising_call_that_blocks_waits_for_the_gpu_too(acting: Stage) -> None:
    played = acting.play("gpu_block", 200_000)
    adds_up(played)
    call = sync_call(played, "cudaEventSynchronize")
    assert int(call["split"].sum()) == int(call["duration_ns"])
    assert int(call["split"][Bucket.GPU_WAIT]) > 180 * MS
    assert played.ns["sleep"] + played.ns["lock_wait"] + played.ns["unexplained"] < 10 * MS


def test_a_spinning_wait_that_loses_its_core_is_runqueue_for_that_part(acting: Stage) -> None:
    _, core = first_and_last_core()
    with hogs(2, core) as culprits:
        played = acting.play("gpu_spin", core, 400_000)
    adds_up(played)
    call = sync_call(played, "cudaStreamSynchronize")
    split = call["split"]
    assert int(split.sum()) == int(call["duration_ns"])
    assert int(split[Bucket.RUNQUEUE]) > 0.3 * int(call["duration_ns"])
    assert int(split[Bucket.GPU_WAIT]) > 0.1 * int(call["duration_ns"])
    assert culprits <= set(played.culprits["pid"].tolist())


# --- window by window -----------------------------------------------------------------------


def test_every_thread_fills_every_window_it_lived_through(acting: Stage, tracer: Tracer) -> None:
    """Two threads, one fighting for the interpreter and one waiting for it to end."""
    tracer.tick()
    played = acting.play("gil", "3.2", window_s=0.8)
    inner = played.windows[1:-1]
    assert len(inner) >= 3
    off_by = []
    rows = np.concatenate([window.threads for window in tracer.windows])
    for window in inner[:-1]:
        mine = rows[(rows["window_ns"] == window.start_ns) & (rows["pid"] == acting.pid)]
        length_ns = window.end_ns - window.start_ns
        for tid in (acting.pid, played.said["tid"]):
            accounted_ns = int(mine[mine["tid"] == tid]["ns"].sum())
            off_by.append(abs(accounted_ns - length_ns) / length_ns)
    # A window ends a moment after its threads are read, which is a slice now and then.
    assert np.median(off_by) < 0.01
    assert max(off_by) < 0.04


def test_the_windows_of_a_thread_that_stays_join_without_gap_or_overlap(
    acting: Stage, tracer: Tracer
) -> None:
    tracer.tick()
    first = int(acting.readings.of(acting.pid)[-1]["now_ns"])
    started = len(tracer.windows)
    for _ in range(3):
        acting.play("time_sleep", "0.05")
    tracer.tick()
    last = acting.readings.of(acting.pid)[-1]
    rows = np.concatenate([window.threads for window in tracer.windows[started:]])
    accounted_ns = int(rows[rows["tid"] == acting.pid]["ns"].sum())
    assert accounted_ns == int(last["now_ns"]) - first


def test_runqueue_agrees_with_proc_for_a_thread_that_goes_on(acting: Stage, tracer: Tracer) -> None:
    """The stage's main thread, from before the agent knew it until now."""
    schedstat = Path(f"/proc/{acting.pid}/task/{acting.pid}/schedstat")

    def kernel_and_ours() -> tuple[int, int]:
        tracer.tick()
        return int(schedstat.read_text().split()[1]), int(
            acting.readings.of(acting.pid)[-1]["acc"][Bucket.RUNQUEUE]
        )

    before = kernel_and_ours()
    for _ in range(5):
        acting.play("time_sleep", "0.02")
    after = kernel_and_ours()
    assert agrees(after[1] - before[1], after[0] - before[0])
