"""Whether buckets sum to durations, of every call and thread of a job that keeps losing its core.

Runs by itself, too, on kernels that have no test runner, for instance with full preemption:

    python -m tests.ebpf.sums PROGRAM [CALLS] [THREADS] [BRIEF]

PROGRAM is tests/workloads/yielding.c, compiled. Exit code 1 and a line for each fault if there is any.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import numpy as np

from ingero.model.layout import Bucket
from ingero.model.window import Records
from tests.ebpf.tracing import Tracer, tracing, workload

RING_BYTES = 64 << 20
AT_DRIVER = {"cudaLaunchKernel": "cuLaunchKernel", "cudaStreamQuery": "cuStreamQuery"}
BAD = ("thread_state", "thread_slot", "histogram_full", "ring_thread", "call_unwound", "return_unmatched")


def run(program: str, calls: int = 1000, threads: int = 8, brief: int = 200) -> tuple[str, list[str]]:
    """What was looked at, and what is wrong with it."""
    env = {**os.environ, "INGERO_STUB_KERNEL_US": "0.05"}
    with (
        workload(program, str(calls), str(threads), str(brief), env=env) as job,
        tracing(pids=(job.pid,), record_all=True, max_overhead_share=None, ring_bytes=RING_BYTES) as tracer,
    ):
        tracer.until_target(job.pid)
        job.start()
        faults: list[str] = []
        for _ in range(20):  # readings amid it
            tracer.tick()
            faults += _threads(tracer)
        [said] = job.wait_done()
        rows = tracer.calls(job.pid)
        counted = tracer.counts(job.pid)
        losses = tracer.losses()
        faults += _threads(tracer)
    off = rows["split"].sum(axis=1).astype(np.int64) - rows["duration_ns"].astype(np.int64)
    if off.any():
        faults.append(f"{(off != 0).sum()} of {len(rows)} calls: buckets off by up to {np.abs(off).max()} ns")
    for function, made in said.items():
        found = counted.get(AT_DRIVER.get(function, function), 0)
        if found != made:
            faults.append(f"{function}: {made} made, {found} counted")
    faults += [f"lost: {losses[reason]} {reason}" for reason in BAD if reason in losses]
    away = int((rows["split"][:, Bucket.RUNQUEUE] > 0).sum())
    return (
        f"{len(rows)} calls of {threads + brief} threads, {away} of them without a core for a while",
        faults,
    )


def _threads(tracer: Tracer) -> Iterator[str]:
    totals: Records = tracer.agent._reader.totals
    for row in totals:
        lasted = int(row["now_ns"]) - int(row["h"]["start_ns"])
        told = int(row["acc"].sum()) + (int(row["open_ns"]) if row["undecided"] else 0)
        if told != lasted:
            yield f"thread {row['h']['tid']}: {told} ns accounted of {lasted}"


def main(words: list[str]) -> int:
    looked_at, faults = run(words[0], *(int(word) for word in words[1:]))
    print(looked_at)
    for fault in faults:
        print(f"wrong: {fault}")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
