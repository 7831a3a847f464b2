"""Memory pressure: reclaim is memory_wait, faults are counted, and a kill is told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ebpf.accounts import MS, Stage, adds_up, stage
from tests.ebpf.tracing import Tracer

MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")


@contextmanager
def memory_limit(name: str, limit_bytes: int) -> Iterator[Path]:
    if not (MEMORY_GROUPS / "memory.limit_in_bytes").exists():
        pytest.skip("no cgroup v1 memory controller: no limit can be set here")
    group = MEMORY_GROUPS / name
    group.mkdir(exist_ok=True)
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
        yield group
    finally:
        deadline = time.monotonic() + 10
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        group.rmdir()


@pytest.fixture(scope="module")
def acting(tracer: Tracer) -> Iterator[Stage]:
    with stage(tracer) as running:
        yield running


def test_reclaim_in_a_full_group_is_memory_wait(tracer: Tracer, disk: Path) -> None:
    big = disk / "big"
    with big.open("wb") as opened:
        for _ in range(192):
            opened.write(os.urandom(1 << 20))
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with memory_limit("ingero-full", 48 << 20) as group, stage(tracer) as full:
        (group / "cgroup.procs").write_text(str(full.pid))
        played = full.play("read_much", big)
        full.job.end()
    adds_up(played)
    assert played.said["bytes"] == 192 << 20
    assert played.ns["memory_wait"] > MS, played.ns


def test_faults_are_counted_as_the_kernel_counts_them(acting: Stage) -> None:
    played = acting.play("touch", 64)
    adds_up(played)
    counted = int(played.rows["minor_faults"].sum())
    assert played.said["minor_faults"] >= 64 * 256
    # The thread's own beginning and end are not in what it says.
    assert played.said["minor_faults"] <= counted < played.said["minor_faults"] + 500


def test_faults_and_switches_from_before_we_came_are_not_ours(tracer: Tracer) -> None:
    """A process that has run for a while has many of them behind it."""
    with stage(tracer) as seen:
        tracer.tick()
        rows = tracer.gather("threads", seen.pid)
        started = Path(f"/proc/{seen.pid}/stat").read_text().rsplit(")", 1)[1].split()
        assert int(started[7]) > 1000  # Python alone takes more than that to start
        assert int(rows["minor_faults"].sum()) < int(started[7]) // 2


EATER = """
import sys
print("ready", flush=True)
sys.stdin.readline()
eaten = [bytes([7]) * (1 << 20) for _ in range(200)]
"""


def test_the_victim_of_the_oom_killer_is_told(tracer: Tracer) -> None:
    with memory_limit("ingero-oom", 32 << 20) as group:
        eater = subprocess.Popen([sys.executable, "-c", EATER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert eater.stdout is not None
        assert eater.stdin is not None
        eater.stdout.readline()
        (group / "cgroup.procs").write_text(str(eater.pid))
        eater.stdin.write(b"go\n")
        eater.stdin.flush()
        assert eater.wait(30) == -9
        for stream in (eater.stdin, eater.stdout):
            stream.close()
    tracer.tick()
    [told] = tracer.gather("ooms", eater.pid)
    assert int(told["h"]["tid"]) == eater.pid
    assert bytes(told["h"]["comm"]).startswith(b"python")
    assert int(told["h"]["start_ns"]) > 0
