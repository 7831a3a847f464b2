"""A small training loop on the CUDA driver, the stub's or a real one, for `ingero demo`.

    python -m ingero.scenarios.workload LIBRARY WORK [CORES]

WORK is a scenario's Work as JSON. The library is loaded first; then it prints `ready`,
waits for a line, trains, and ends when its standard input does.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import select
import sys
import time
from ctypes import c_ulonglong, c_void_p
from importlib import resources
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ingero.scenarios.cuda import CudaLibrary
from ingero.scenarios.scenario import Work

WORKER_NAME = "data_worker"
AHEAD = 2  # batches a worker prepares before they are asked for


def compute(us: float) -> None:
    """Python that takes this much CPU time."""
    until_ns = time.thread_time_ns() + int(us * 1000)
    while time.thread_time_ns() < until_ns:
        pass


def prepare_batches(asked: Connection, item_us: int) -> None:
    """A worker: a batch for each request, until nobody asks any more."""
    Path("/proc/self/comm").write_text(WORKER_NAME)
    try:
        while True:
            asked.recv()
            compute(item_us)
            asked.send(b"batch")
    except (EOFError, OSError, KeyboardInterrupt):
        return


class Device:
    """A context, a kernel that spins, a stream and two buffers."""

    def __init__(self, driver: CudaLibrary, work: Work) -> None:
        self._driver = driver
        self._kernel, self._stream, self._target = c_void_p(), c_void_p(), c_ulonglong()
        context, pinned = c_void_p(), c_void_p()
        driver.cuInit(0)
        driver.cuDevicePrimaryCtxRetain(context, 0)
        driver.cuCtxSetCurrent(context)
        self._load(work.modules)
        driver.cuStreamCreate(self._stream, 0)
        driver.cuMemAlloc_v2(self._target, work.batch_bytes)
        self._own = ctypes.create_string_buffer(work.batch_bytes if work.pageable else 1)
        self._batch: Any = self._own
        if not work.pageable:
            driver.cuMemAllocHost_v2(pinned, work.batch_bytes)
            self._batch = pinned

    def _load(self, modules: int) -> None:
        code = resources.files("ingero.scenarios").joinpath("spin.ptx").read_bytes() + b"\0"
        for _ in range(modules):
            module = c_void_p()
            self._driver.cuModuleLoadData(module, code)
            self._driver.cuModuleGetFunction(self._kernel, module, b"spin")

    def step(self, work: Work) -> None:
        driver, stream = self._driver, self._stream
        driver.cuMemcpyHtoDAsync_v2(self._target, self._batch, work.batch_bytes, stream)
        for _ in range(work.launches):
            driver.cuLaunchKernel(self._kernel, work.kernel_us, 1, 1, 1, 1, 1, 0, stream, None, None)
        driver.cuStreamSynchronize(stream)


def train(driver: CudaLibrary, work: Work) -> None:
    """Until standard input ends."""
    workers = [_worker(work) for _ in range(work.workers)]
    device = Device(driver, work)
    pause_due = time.monotonic() + work.pause_every_s
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        if workers:
            batches = workers[number % len(workers)]
            batches.recv()
            batches.send(None)
        compute(work.host_us)
        if work.pause_ms and time.monotonic() >= pause_due:
            pause_due += work.pause_every_s
            compute(1000 * work.pause_ms)
        device.step(work)
        number += 1


def _worker(work: Work) -> Connection:
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.get_context("fork").Process(
        target=_begin_worker, args=(ours, theirs, work.item_us), daemon=True
    )
    worker.start()
    theirs.close()
    for _ in range(AHEAD):
        ours.send(None)
    return ours


def _begin_worker(parents: Connection, ours: Connection, item_us: int) -> None:
    parents.close()  # else the end of the parent would never be seen
    prepare_batches(ours, item_us)


def main() -> None:
    library, work = sys.argv[1], Work(**json.loads(sys.argv[2]))
    if len(sys.argv) > 3:
        os.sched_setaffinity(0, {int(core) for core in sys.argv[3].split(",")})
    if work.name:
        Path("/proc/self/comm").write_text(work.name)
    driver = CudaLibrary(library)
    print("ready", flush=True)
    if sys.stdin.readline():
        train(driver, work)


if __name__ == "__main__":
    main()
