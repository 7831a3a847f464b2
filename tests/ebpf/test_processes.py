"""Threads and processes come and go; nobody's time is lost or mixed with another's."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ingero.model.layout import Bucket
from tests.ebpf.accounts import MS, Readings, Rows, Stage, adds_up, stage
from tests.ebpf.real_runs import state_of, until, works
from tests.ebpf.tracing import Tracer, tracing, workload

WINDOW_S = 0.15  # several short windows, where what happens in them goes on
WAITED_S = 1.2  # a wait that is seen while it lasts


@pytest.fixture(scope="module")
def acting(tracer: Tracer) -> Iterator[Stage]:
    with stage(tracer) as running:
        yield running


def total(rows: Rows, bucket: Bucket) -> int:
    return int(rows["ns"][:, bucket].sum())


def test_a_forked_child_is_accounted_from_birth_to_death(acting: Stage, tracer: Tracer) -> None:
    played = acting.play("fork_child", "0.15")
    adds_up(played)
    child, told = played.said["child"], played.said["told"]
    tracer.until(lambda: tracer.tick() and acting.readings.died(child))
    last = acting.readings.of(child)[-1]
    assert int(last["acc"].sum()) == int(last["now_ns"]) - int(last["h"]["start_ns"])
    assert int(last["h"]["start_ns"]) <= told["start_ns"]
    assert int(last["now_ns"]) >= told["end_ns"]
    rows = tracer.gather("threads", child)
    assert total(rows, Bucket.SLEEP) >= 150 * MS
    assert int(rows["ns"].sum()) == int(last["acc"].sum())
    news = [each for window in tracer.windows for each in window.processes if each.pid == child]
    assert news[-1].end_ns is not None
    assert news[-1].exit_code == 7 << 8


def test_every_one_of_many_short_threads_leaves_its_accounting(
    tracer: Tracer, compiled: Callable[..., str], acting: Stage
) -> None:
    """200 threads, each of which is gone long before anybody looks."""
    program = compiled("waits/threads.c", "-pthread", "-LSTUB", "-l:libcudart.so.12", "-Wl,-rpath,STUB")
    with workload(program, "short", "200") as job:
        tracer.until_target(job.pid)
        [said] = job.go()
        tracer.until(lambda: tracer.tick() and all(acting.readings.died(tid) for tid in said["tids"][:200]))
        rows = tracer.gather("threads", job.pid)
        for tid in set(said["tids"]):
            mine = rows[rows["tid"] == tid]
            assert int(mine["ns"].sum()) >= MS * said["tids"].count(tid)
        # One that loses its core on the way to sleep sleeps for less.
        assert total(rows, Bucket.SLEEP) > 150 * MS


def test_a_first_thread_that_ended_waits_for_nothing(
    tracer: Tracer, compiled: Callable[..., str], acting: Stage
) -> None:
    """The process goes on without it, and the kernel keeps it as a zombie."""
    program = compiled("waits/threads.c", "-pthread", "-LSTUB", "-l:libcudart.so.12", "-Wl,-rpath,STUB")
    with workload(program, "headless") as job:
        tracer.until_target(job.pid)
        job.start()
        tracer.until(lambda: tracer.tick() and acting.readings.died(job.pid))
        died_at = len(tracer.windows)
        for _ in range(3):
            time.sleep(WINDOW_S)
            tracer.tick()
        later = np.concatenate([window.threads for window in tracer.windows[died_at:]])
        later = later[later["pid"] == job.pid]
        assert set(later["tid"].tolist()) - {job.pid}  # the rest of it is there
        assert job.pid not in later["tid"]


@pytest.mark.parametrize("who", ["first", "other"])
def test_a_thread_that_executes_another_program_keeps_its_time_and_gets_no_more(
    tracer: Tracer, compiled: Callable[..., str], acting: Stage, who: str
) -> None:
    """Whichever thread executes, afterwards it has the first one's tid."""
    program = compiled("waits/threads.c", "-pthread", "-LSTUB", "-l:libcudart.so.12", "-Wl,-rpath,STUB")
    tracer.tick()
    with workload(program, f"exec-{who}") as job:
        tracer.until_target(job.pid)
        tracer.tick()
        start_ns = time.monotonic_ns()
        job.start()
        for _ in range(5):
            time.sleep(WINDOW_S)
            tracer.tick()
        comm = Path(f"/proc/{job.pid}/comm").read_text().strip()
        assert comm == "sleep"
        elapsed_ns = time.monotonic_ns() - start_ns
        readings = acting.readings.of(job.pid)
        [last] = readings[-1:]
        assert int(last["acc"].sum()) == int(last["now_ns"]) - int(last["h"]["start_ns"])
        rows = tracer.gather("threads", job.pid)
        rows = rows[rows["window_ns"] + 1 > start_ns]
        assert set(rows["comm"][-1:].tolist()) == {b"sleep"}
        for tid in set(rows["tid"].tolist()):
            assert int(rows[rows["tid"] == tid]["ns"].sum()) < elapsed_ns + 20 * MS
        assert total(rows[rows["tid"] == job.pid], Bucket.SLEEP) > 200 * MS


def test_a_wait_from_before_we_came_is_seen_while_it_lasts() -> None:
    """A process that has blocked in a pipe for longer than the agent runs."""
    with workload("waits/stage.py") as job:
        until(lambda: state_of(job.pid) == "S", "it has blocked")
        with tracing(pids=(job.pid,)) as late:
            time.sleep(WAITED_S)
            window = late.tick()
            [mine] = window.in_flight[window.in_flight["h"]["tid"] == job.pid]
            assert mine["before_attach"] == 1
            assert mine["open_bucket"] == Bucket.PEER_WAIT
            assert int(mine["open_ns"]) > 1000 * MS
            rows = late.gather("threads", job.pid)
            waited_ns = total(rows[rows["tid"] == job.pid], Bucket.PEER_WAIT)
            assert waited_ns == int(mine["open_ns"])


def test_a_process_taken_in_while_it_runs_adds_up(tracer: Tracer) -> None:
    """Threads that block, run and wait for a core at the moment they are first seen."""
    with stage(tracer) as other:
        spinning = threading.Thread(target=lambda: other.play("gil", "0.8"))
        spinning.start()
        works(other.pid)
        with tracing(pids=(other.pid,)) as late:
            readings = Readings(late)
            for _ in range(3):
                time.sleep(WINDOW_S)
                late.tick()
            spinning.join()
            late.tick()
            for tid in {int(row["h"]["tid"]) for rows in readings.totals for row in rows}:
                for reading in readings.of(tid):
                    accounted = int(reading["acc"].sum()) + int(reading["undecided"]) * int(
                        reading["open_ns"]
                    )
                    assert accounted == int(reading["now_ns"]) - int(reading["h"]["start_ns"])


def test_a_reused_tid_is_another_thread(tracer: Tracer) -> None:
    """The next thread gets the tid of one that is gone; each has its own account."""
    last_pid = Path("/proc/sys/kernel/ns_last_pid")
    if not last_pid.exists():
        pytest.skip("this kernel does not let the next pid be chosen")
    with stage(tracer) as reusing:
        first = reusing.play("time_sleep", "0.1")
        tid = first.said["tid"]
        for _ in range(20):
            last_pid.write_text(str(tid - 1))
            second = reusing.play("pipe_read")
            if second.said["tid"] == tid:
                break
        else:
            pytest.skip("others took the pid each time")
        assert first.ns["sleep"] >= 100 * MS
        accounts = {int(reading["h"]["start_ns"]) for reading in reusing.readings.of(tid)}
        assert len(accounts) == 2
        assert second.ns["sleep"] < 50 * MS
        assert second.ns["peer_wait"] >= 100 * MS
        assert second.wall_ns < 2 * (second.said["end_ns"] - second.said["start_ns"])


FROZEN_S = 0.3


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_frozen_process_is_unexplained_not_short_of_a_core(
    acting: Stage, tracer: Tracer, version: str
) -> None:
    """As `docker pause` does it."""
    root = Path("/sys/fs/cgroup/freezer" if version == "v1" else "/sys/fs/cgroup/unified")
    if not root.is_dir():
        pytest.skip(f"no cgroup {version} freezer")
    group = root / "ingero-frozen"
    group.mkdir(exist_ok=True)
    switch, on, off = (
        (group / "freezer.state", "FROZEN", "THAWED")
        if version == "v1"
        else (group / "cgroup.freeze", "1", "0")
    )
    with stage(tracer, acting.readings) as frozen:
        (group / "cgroup.procs").write_text(str(frozen.pid))
        try:
            acted = []
            acting_now = threading.Thread(target=lambda: acted.append(frozen.play("spin_on", 0, "0.8")))
            acting_now.start()
            works(frozen.pid)
            switch.write_text(on)
            time.sleep(FROZEN_S)
            switch.write_text(off)
            acting_now.join()
        finally:
            switch.write_text(off)
            (root / "cgroup.procs").write_text(str(frozen.pid))
            group.rmdir()
    [played] = acted
    adds_up(played)
    assert played.ns["unexplained"] > FROZEN_S * 1e9 * 0.8, played.ns
    assert abs(played.ns["runqueue"] - played.said["run_delay_ns"]) < 20 * MS
    assert played.ns["memory_wait"] < 20 * MS


def test_no_accounting_was_lost(tracer: Tracer) -> None:
    """Runs last in this file."""
    tracer.tick()
    lost = tracer.losses()
    for reason in (
        "ring_thread",
        "ring_process",
        "thread_state",
        "process_full",
        "culprit_full",
        "waker_full",
    ):
        assert not lost.get(reason), lost
    assert os.getpid() not in tracer.gather("threads")["pid"]
    assert subprocess.run(["true"], check=False).returncode == 0
