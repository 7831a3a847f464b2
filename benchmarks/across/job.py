"""Some ranks of a training job, those of one node: each a process, meeting the others once a step.

    job.py FOLDER --ranks 8 --here 4,5 --steps 120 [--fault cores --rank 5 --from-step 40 --ms 40]

The ranks share one stub device through FOLDER and leave in it when they came to each
collective (truth-RANK.json, by the clock all of them share).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

from ingero.scenarios import cuda

KERNELS = 10
PATIENCE_S = 60
HUNG_S = 15  # that the others wait for a rank that is gone


def compute(ms: float) -> None:
    """On a core for so long, however long it takes to get it."""
    until = time.thread_time_ns() + int(ms * 1e6)
    while time.thread_time_ns() < until:
        pass


def sync_writes(ms: float, file: int) -> None:
    until = time.monotonic_ns() + int(ms * 1e6)
    while time.monotonic_ns() < until:
        os.pwrite(file, os.urandom(4096), 0)
        os.fsync(file)


def waited_share() -> float:
    """Of this process's time, what it waited for a core, as the kernel counts it."""
    ran_ns, waited_ns, _ = map(int, Path("/proc/self/schedstat").read_text().split())
    started_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    lived_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - started_ticks * 10**9 // os.sysconf("SC_CLK_TCK")
    return waited_ns / max(lived_ns, ran_ns + waited_ns)


class Rank:
    """One of them."""

    def __init__(self, rank: int, options: argparse.Namespace) -> None:
        self._rank, self._options, self._folder = rank, options, options.folder
        self._came: list[int] = []
        self._cuda, self._nccl = cuda.stub_runtime(), cuda.stub_nccl()
        self._faulty = rank == options.rank
        if self._faulty and options.core is not None:
            os.sched_setaffinity(0, {options.core})
        with contextlib.suppress(OSError):  # a busy machine is no fault that was asked for
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))

    def live(self) -> None:
        self._join()
        for step in range(self._options.steps):
            self._step(step)
        text = json.dumps({"pid": os.getpid(), "came_ns": self._came, "waited_share": waited_share()})
        (self._folder / f"truth-{self._rank}.json").write_text(text)

    def _join(self) -> None:
        self._cuda.cudaSetDevice(self._rank)
        self._cuda.cudaSetDeviceFlags(cuda.SCHEDULE_BLOCK)
        self._buffer, self._stream = self._cuda.malloc(1 << 26), self._cuda.stream()
        self._kernel = cuda.stub_kernel(cuda.KERNELS[0])
        unique, self._comm = cuda.UniqueId(), ctypes.c_void_p()
        file = self._folder / "id"
        if self._rank == 0:
            self._nccl.ncclGetUniqueId(ctypes.byref(unique))
            (self._folder / "new").write_bytes(bytes(unique))
            (self._folder / "new").rename(file)
        deadline = time.monotonic() + PATIENCE_S
        while not file.exists():
            if time.monotonic() > deadline:
                sys.exit("the other ranks did not come")
            time.sleep(0.005)
        unique = cuda.UniqueId.from_buffer_copy(file.read_bytes())
        self._nccl.ncclCommInitRank(ctypes.byref(self._comm), self._options.ranks, unique, self._rank)

    def _step(self, step: int) -> None:
        self._prepare(step)
        blocks = int(self._options.gpu_ms * 1000 / KERNELS)
        for _ in range(KERNELS):
            self._cuda.cudaLaunchKernel(
                self._kernel, cuda.Dim3(blocks, 1, 1), cuda.Dim3(256, 1, 1), None, 0, self._stream
            )
        self._cuda.cudaStreamSynchronize(self._stream)
        self._came.append(time.monotonic_ns())
        self._nccl.ncclAllReduce(
            self._buffer, self._buffer, 1 << 22, cuda.NCCL_FLOAT32, cuda.NCCL_SUM, self._comm, self._stream
        )
        self._cuda.cudaStreamSynchronize(self._stream)

    def _prepare(self, step: int) -> None:
        """The host's part of a step: the next batch."""
        options = self._options
        compute(options.host_ms)
        if not self._faulty or step < options.from_step:
            return
        if step == options.from_step:
            (self._folder / "begun").touch()
        if options.fault == "gone":
            os._exit(0)
        if options.fault == "computes":
            compute(options.ms)
        elif options.fault == "sleeps":
            time.sleep(options.ms / 1e3)
        elif options.fault == "disk":
            file = os.open(self._folder / "checkpoint", os.O_RDWR | os.O_CREAT)
            sync_writes(options.ms, file)
            os.close(file)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--here", required=True)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--gpu-ms", type=float, default=20)
    parser.add_argument("--host-ms", type=float, default=1.5)
    parser.add_argument("--fault", default="")
    parser.add_argument("--rank", type=int, default=-1)
    parser.add_argument("--from-step", type=int, default=0)
    parser.add_argument("--ms", type=float, default=40)
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    children = [start(int(rank), options) for rank in options.here.split(",")]
    if options.fault == "gone":
        give_up(options.folder, children)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(map(abs, codes)))


def give_up(folder: Path, children: list[int]) -> None:
    """What a watchdog does some time after a rank is gone; nothing of that is a failure of ours."""
    deadline = time.monotonic() + PATIENCE_S
    while not (folder / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(HUNG_S)
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    sys.exit(0)


def start(rank: int, options: argparse.Namespace) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        Rank(rank, options).live()
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
