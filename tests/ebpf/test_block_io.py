"""Disk: the wait, the request behind it, who issued it and whose wait it ended."""

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
from tests.ebpf.accounts import MS, Stage, adds_up, stage
from tests.ebpf.real_runs import Place
from tests.ebpf.tracing import Tracer, workload

BLKIO_GROUPS = Path("/sys/fs/cgroup/blkio")
BLOCKS = 12  # of 64 KiB
READS_PER_SECOND = 50
LEAST_MS = (BLOCKS - 4) * 1000 // READS_PER_SECOND  # the first few come at once


@pytest.fixture(scope="module")
def acting(tracer: Tracer) -> Iterator[Stage]:
    with stage(tracer) as running:
        yield running


@pytest.fixture(scope="module")
def file(disk: Path) -> Path:
    """On the disk and nowhere else."""
    path = disk / "file"
    with path.open("wb") as opened:
        opened.write(os.urandom(BLOCKS << 16))
        os.fsync(opened.fileno())
    return path


@contextmanager
def slow_disk(path: Path) -> Iterator[Path]:
    """A group whose reads from this file's disk are held back by the kernel."""
    if not (BLKIO_GROUPS / "blkio.throttle.read_iops_device").exists():
        pytest.skip("no cgroup v1 blkio controller: reads cannot be slowed down")
    group = BLKIO_GROUPS / "ingero-slow"
    group.mkdir(exist_ok=True)
    dev = path.stat().st_dev
    try:
        limit = f"{os.major(dev)}:{os.minor(dev)} {READS_PER_SECOND}"
        (group / "blkio.throttle.read_iops_device").write_text(limit)
        yield group / "tasks"
    finally:
        deadline = time.monotonic() + 10
        while (group / "tasks").read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        group.rmdir()


@pytest.mark.parametrize("act", ["read_direct", "read_uncached", "fault_file"])
def test_reads_that_must_wait_for_the_disk_are_disk_wait(acting: Stage, file: Path, act: str) -> None:
    with slow_disk(file) as tasks:
        played = acting.play(act, file, BLOCKS, tasks)
    adds_up(played)
    assert played.ns["disk_wait"] > LEAST_MS * MS, played.ns
    others = ("memory_wait", "lock_wait", "peer_wait", "net_wait", "sleep", "unexplained")
    assert sum(played.ns[name] for name in others) < 20 * MS, played.ns
    if act == "fault_file":
        assert int(played.rows["major_faults"].sum()) >= BLOCKS


def test_a_read_is_a_block_record_with_its_issuer_and_the_interrupt_as_waker(
    acting: Stage, file: Path
) -> None:
    played = acting.play("read_direct", file, BLOCKS)
    adds_up(played)
    mine = played.blocks
    assert len(mine) == BLOCKS
    dev = file.stat().st_dev
    assert set(mine["dev"].tolist()) == {os.major(dev) << 20 | os.minor(dev)}
    assert mine["bytes"].tolist() == [1 << 16] * BLOCKS
    assert not mine["write"].any()
    assert not mine["error"].any()
    assert (mine["duration_ns"] > 0).all()
    assert int(mine["duration_ns"].sum()) < played.said["end_ns"] - played.said["start_ns"]
    kind, pid, tid = played.main_waker("disk_wait")
    assert (kind, pid, tid) == ("WAKER_IRQ_BLOCK", 0, 0)


def test_a_long_wait_for_the_disk_names_its_request_and_the_request_its_waiter(
    acting: Stage, disk: Path
) -> None:
    large = disk / "large"
    with large.open("wb") as opened:
        opened.write(os.urandom(1 << 20) * 64)
        os.fsync(opened.fileno())
    played = acting.play("read_at_once", large, 64)
    adds_up(played)
    waits = played.waits[played.waits["dev"] > 0]
    assert len(waits), played.ns
    assert set(waits["bucket"].tolist()) == {int(Bucket.DISK_WAIT)}
    waited_for = played.blocks[np.isin(played.blocks["sector"], waits["sector"])]
    assert len(waited_for) >= 1
    assert set(waited_for["waiter_pid"].tolist()) == {acting.pid}
    assert set(waited_for["waiter_tid"].tolist()) == {played.said["tid"]}
    assert int(played.blocks["bytes"].sum()) == 64 << 20


READER = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
memory = mmap.mmap(-1, 1 << 16)
for index in range(int(sys.argv[2])):
    os.preadv(fd, [memory], index << 16)
"""


def test_what_others_read_is_summed_up_and_not_recorded(acting: Stage, tracer: Tracer, file: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", READER, str(file), str(BLOCKS)])
    assert stranger.wait() == 0
    tracer.tick()
    assert not len(tracer.gather("blocks", stranger.pid))
    theirs = tracer.gather("io", stranger.pid)
    theirs = theirs[theirs["write"] == 0]
    dev = file.stat().st_dev
    assert set(theirs["dev"].tolist()) == {os.major(dev) << 20 | os.minor(dev)}
    assert set(theirs["comm"].tolist()) <= {b"python", b"python3", Path(sys.executable).name.encode()[:15]}
    assert theirs["count"].sum() >= BLOCKS
    assert theirs["bytes"].sum() >= BLOCKS << 16
    assert theirs["ns"].sum() >= theirs["max_ns"].max() > 0


def test_neither_targets_nor_the_agent_are_among_the_others(
    acting: Stage, tracer: Tracer, file: Path
) -> None:
    first = len(tracer.windows)
    acting.play("read_direct", file, BLOCKS)
    subprocess.run(["sync", str(file)], check=True)
    with file.with_name("own").open("wb") as own:
        own.write(b"x" * 65536)
        os.fsync(own.fileno())  # in the agent's process
    tracer.tick()
    others = {int(row["pid"]) for window in tracer.windows[first:] for row in window.io}
    assert not others & {acting.pid, os.getpid()}


def test_a_recording_says_who_else_used_the_disk(place: Place, steady: str, file: Path) -> None:
    with workload(steady) as job:
        job.start()
        with place.tracing("--pid", str(job.pid)) as run:
            stranger = subprocess.Popen([sys.executable, "-c", READER, str(file), str(BLOCKS)])
            assert stranger.wait() == 0
            run.stop()
    told = place.sql(
        "SELECT SUM(i.count), SUM(i.bytes) FROM io_second i JOIN op o ON o.id = i.op_id"
        f" WHERE i.pid = {stranger.pid} AND o.name = 'read'"
    )
    [(count, size)] = told
    assert count >= BLOCKS
    assert size >= BLOCKS << 16
    assert place.sql(f"SELECT COUNT(*) FROM events WHERE pid = {stranger.pid}") == [(0,)]


@pytest.fixture(scope="module")
def journalled(disk: Path) -> Iterator[Path]:
    """A file system with a journal, on a loop device."""
    folder = disk / "journal"
    folder.mkdir()
    image, mounted = folder / "image", folder / "mounted"
    mounted.mkdir()
    with image.open("wb") as opened:
        opened.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "has_journal", str(image)], check=True)
    made = subprocess.run(["mount", "-o", "loop", str(image), str(mounted)], check=False, capture_output=True)
    if made.returncode:
        pytest.skip(f"cannot mount a loop device: {made.stderr.decode()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


def test_fsync_on_a_journal_is_disk_wait(acting: Stage, journalled: Path) -> None:
    played = acting.play("fsync", journalled / "file", 60)
    adds_up(played)
    # The rest of it was spent on a core, or waiting for one behind the workers it waits for.
    assert played.ns["disk_wait"] > 0.4 * played.said["took_ns"], (played.ns, played.said)
    others = ("memory_wait", "lock_wait", "peer_wait", "net_wait", "sleep", "unexplained")
    assert sum(played.ns[name] for name in others) < 0.02 * played.said["took_ns"] + 5 * MS, played.ns
    kinds = {played.main_waker("disk_wait")[0]}
    assert kinds <= {"WAKER_TASK", "WAKER_IRQ_BLOCK"}
    named = played.wakers_of("disk_wait")
    for row in named[named["waker_pid"] > 0]:  # the journal or a worker, never whoever just ran
        assert bytes(row["comm"]).startswith((b"jbd2", b"kworker", b"loop")), row
