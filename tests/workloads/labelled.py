"""A training loop that labels its steps and keeps its own account of them.

    labelled.py [--steps N] [--slow EVERY] [--step-ms M] [--sleep-ms S] [--compute-ms C] [--labels COPIES]

A step computes M ms in Python. Every EVERYth step sleeps S ms, as a slow loader would
make it; the one after it computes C ms more. Prints `ready PID`, waits for a line,
trains, prints for each step its number, begin and end (CLOCK_MONOTONIC), and what it
spent asleep, computing and
synchronising, then `done`, and waits for another line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from ingero.annotate import annotate
from ingero.scenarios import cuda

KERNELS = 20


def compute(ms: float) -> int:
    """Python that takes this much CPU time."""
    before_ns = time.monotonic_ns()
    until_ns = time.thread_time_ns() + int(ms * 1e6)
    while time.thread_time_ns() < until_ns:
        pass
    return time.monotonic_ns() - before_ns


def asleep(ms: float) -> int:
    before_ns = time.monotonic_ns()
    time.sleep(ms / 1e3)
    return time.monotonic_ns() - before_ns


def one_step(
    runtime: cuda.CudaRuntime, kernel: int, number: int, options: argparse.Namespace
) -> dict[str, int]:
    begin_ns = time.monotonic_ns()
    for _ in range(options.labels):
        annotate(step=number, epoch=number // 50)
    slow = number % options.slow
    slept_ns = asleep(options.sleep_ms) if slow == options.slow - 1 else 0
    computed_ns = compute(options.step_ms + (options.compute_ms if slow == 0 and number else 0))
    for _ in range(KERNELS):
        runtime.launch(kernel, 50)
    synced_ns = time.monotonic_ns()
    runtime.cudaStreamSynchronize(None)
    end_ns = time.monotonic_ns()
    return {
        "step": number, "begin_ns": begin_ns, "end_ns": end_ns, "slept_ns": slept_ns,
        "computed_ns": computed_ns, "synced_ns": end_ns - synced_ns,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--slow", type=int, default=20)
    parser.add_argument("--step-ms", type=float, default=2)
    parser.add_argument("--sleep-ms", type=float, default=150)
    parser.add_argument("--compute-ms", type=float, default=80)
    parser.add_argument("--labels", type=int, default=1)
    options = parser.parse_args()
    runtime = cuda.stub_runtime()
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    kernel = cuda.stub_kernel(cuda.KERNELS[0])
    runtime.cudaStreamSynchronize(None)
    steps = [one_step(runtime, kernel, number, options) for number in range(options.steps)]
    annotate(step="", epoch="")
    for each in steps:
        print(json.dumps(each))
    print("done", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
