"""A training loop as it looks from outside: per step a batch to the device, kernels, a sync.

    busy.py [--steps N] [--kernels K] [--blocks B] [--batch-bytes B] [--host-us U] [--blocking] [--pageable]

Prints `ready PID`, waits for a line, trains, prints one JSON line with the step times,
`done`, and waits for another line. --host-us is CPU time spent in Python for each step.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import time

from ingero.scenarios import cuda


def prepare_batch(host_us: float) -> int:
    """Burns CPU time in Python, as per-item work does."""
    until_ns = time.thread_time_ns() + int(host_us * 1e3)
    rounds = 0
    while time.thread_time_ns() < until_ns:
        rounds += 1
    return rounds


def train_step(
    runtime: cuda.CudaRuntime, kernels: list[int], options: argparse.Namespace, batch: int, device: int
) -> None:
    """One step."""
    prepare_batch(options.host_us)
    runtime.cudaMemcpyAsync(device, batch, options.batch_bytes, cuda.HOST_TO_DEVICE, None)
    for index in range(options.kernels):
        runtime.launch(kernels[index % len(kernels)], options.blocks)
    runtime.cudaStreamSynchronize(None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=50)
    parser.add_argument("--batch-bytes", type=int, default=1 << 20)
    parser.add_argument("--host-us", type=float, default=0)
    parser.add_argument("--blocking", action="store_true")
    parser.add_argument("--pageable", action="store_true")
    options = parser.parse_args()
    runtime = cuda.stub_runtime()
    if options.blocking:
        runtime.cudaSetDeviceFlags(cuda.SCHEDULE_BLOCK)
    own = ctypes.create_string_buffer(options.batch_bytes)
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    kernels = [cuda.stub_kernel(name) for name in cuda.KERNELS]
    device = runtime.malloc(options.batch_bytes)
    batch = ctypes.addressof(own) if options.pageable else runtime.malloc_host(options.batch_bytes)
    steps_ns = []
    for _ in range(options.steps):
        before_ns = time.monotonic_ns()
        train_step(runtime, kernels, options, batch, device)
        steps_ns.append(time.monotonic_ns() - before_ns)
    print(json.dumps({"steps_ns": steps_ns}))
    print("done", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
