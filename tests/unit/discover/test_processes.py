"""Processes against the real /proc, with real children."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ingero.discover import processes
from ingero.errors import TargetError
from ingero.units import cpus_of

from .conftest import WAIT, Start


def test_a_child_is_described_as_it_was_started(start: Start) -> None:
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    child = start(
        sys.executable, "-c", WAIT, "two words", env={"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}
    )
    process = processes.read_process(child.pid)
    assert process is not None
    assert process.pid == child.pid
    assert process.parent_pid == os.getpid()
    assert process.uid == os.getuid()
    assert process.cmdline.startswith(sys.executable)
    assert process.cmdline.endswith("two words")
    assert (process.rank, process.local_rank, process.world_size) == (3, 1, 8)
    assert abs(process.start_ns - before) < 5_000_000_000
    assert before - process.start_ns <= processes.TICK_NS


def test_the_cores_it_may_use_are_told(start: Start) -> None:
    mine = sorted(os.sched_getaffinity(0))
    child = start("taskset", "-c", str(mine[-1]), sys.executable, "-c", WAIT)
    process = processes.read_process(child.pid)
    assert process is not None
    assert process.cpus == str(mine[-1])
    itself = processes.read_process(os.getpid())
    assert itself is not None
    assert set(mine) <= set(cpus_of(itself.cpus))


@pytest.mark.parametrize(
    "env, rank",
    [
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "16"}, (5, 1, 16)),
        (
            {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"},
            (2, 0, 4),
        ),
        ({"RANK": "7", "SLURM_PROCID": "0"}, (7, None, None)),
        ({"RANK": "not a number", "LOCAL_RANK": "-1", "WORLD_SIZE": "9" * 30}, (None, None, None)),
    ],
)
def test_ranks_come_from_whichever_launcher_set_them(
    start: Start, env: dict[str, str], rank: tuple[int | None, ...]
) -> None:
    process = processes.read_process(start(env=env).pid)
    assert process is not None
    assert (process.rank, process.local_rank, process.world_size) == rank


def test_only_known_variables_are_kept(start: Start) -> None:
    child = start(env={"CUDA_VISIBLE_DEVICES": "0,1", "MY_TOKEN": "secret"})
    kept = processes.environment(child.pid)
    assert kept["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "MY_TOKEN" not in kept


def test_a_process_that_is_gone_is_none(start: Start) -> None:
    child = start()
    process = processes.read_process(child.pid)
    assert process is not None
    assert processes.still_runs(process)
    child.kill()
    child.wait()
    assert processes.read_process(child.pid) is None
    assert processes.read_stat(child.pid) is None
    assert processes.environment(child.pid) == {}
    assert not processes.still_runs(process)


def test_a_zombie_is_described_but_does_not_run(start: Start) -> None:
    child = start()
    process = processes.read_process(child.pid)
    assert process is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.read_process(child.pid) is not None
    assert not processes.still_runs(process)


def test_a_later_process_with_the_same_pid_is_not_the_same() -> None:
    process = processes.read_process(os.getpid())
    assert process is not None
    assert processes.still_runs(process)
    assert not processes.still_runs(replace(process, start_ns=process.start_ns - 2 * processes.TICK_NS))


def test_start_times_of_the_kernel_and_of_proc_are_compared_in_ticks() -> None:
    assert processes.same_start(5 * processes.TICK_NS, 5 * processes.TICK_NS + 1234)
    assert not processes.same_start(5 * processes.TICK_NS, 6 * processes.TICK_NS)


def test_a_handle_never_reads_from_a_process_that_took_the_pid_over(start: Start) -> None:
    child = start()
    with processes.ProcessHandle(child.pid) as handle:
        child.kill()
        child.wait()
        with pytest.raises(OSError):
            handle.read("stat")


def test_reading_while_processes_come_and_go_never_fails() -> None:
    command = "for i in $(seq 300); do /bin/true; done"
    with subprocess.Popen(["/bin/sh", "-c", command]) as shell:
        while shell.poll() is None:
            for process, container in processes.all_processes():
                assert process.pid > 0
                assert container.cgroup_path
            processes.descendants(os.getpid())


def test_a_hostile_name_cannot_drive_the_terminal(start: Start) -> None:
    rename = "import ctypes; ctypes.CDLL(None).prctl(15, b')\\x1b[31m (x y)');" + WAIT
    child = start(sys.executable, "-c", rename, "\x1b]0;owned\x07", "line\nbreak")
    process = processes.read_process(child.pid)
    assert process is not None
    assert process.comm.startswith(")")
    assert process.parent_pid == os.getpid()
    assert process.cmdline.endswith("line break")
    assert not any(ord(each) < 32 for each in process.comm + process.cmdline)


def test_a_long_command_line_is_capped(start: Start) -> None:
    process = processes.read_process(start(sys.executable, "-c", WAIT, "x" * 100_000).pid)
    assert process is not None
    assert len(process.cmdline) == processes.MAX_CMDLINE_CHARS


def test_a_name_with_brackets_does_not_shift_the_fields() -> None:
    raw = b"42 (a) R 7 (b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 900 20"
    stat = processes.parse_stat(raw)
    assert (stat.pid, stat.comm, stat.parent_pid, stat.start_ns) == (
        42,
        "a) R 7 (b",
        1,
        900 * processes.TICK_NS,
    )


def test_descendants_include_grandchildren_and_not_the_process_itself(start: Start) -> None:
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WAIT!r}])"
    child = start(sys.executable, "-c", nested)
    found = processes.descendants(os.getpid())
    assert child.pid in found
    assert len(processes.descendants(child.pid)) == 1
    assert set(processes.descendants(child.pid)) < set(found)
    assert os.getpid() not in found


def test_a_user_is_known_by_name_and_number() -> None:
    name = pwd.getpwuid(os.getuid()).pw_name
    assert processes.user_id(name) == processes.user_id(str(os.getuid())) == os.getuid()
    with pytest.raises(TargetError):
        processes.user_id("nobody-has-this-name")


def test_a_pid_nobody_has_says_so() -> None:
    error = processes.missing_process(999_999_999)
    assert "no process 999999999" in error.message
    assert error.hint


@pytest.mark.skipif(os.getuid() != 0, reason="a PID namespace needs root")
def test_a_pid_from_inside_a_container_is_translated_in_the_hint(start: Start) -> None:
    if not Path("/usr/bin/unshare").exists():
        pytest.skip("no unshare here")
    child = start("/usr/bin/unshare", "--pid", "--fork", sys.executable, "-c", WAIT)
    inner = processes.descendants(child.pid)[0]
    assert processes.namespace_pids(inner) == [inner, 1]
    assert f"{inner} on this host" in processes.missing_process(1).hint
