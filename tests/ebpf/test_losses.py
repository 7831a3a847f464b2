"""Nothing is lost silently: calls made = records + histogram-only calls + counted losses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.ebpf.tracing import NAMES, Tracer, Workload, tracing, workload

FLOOD = ("-pthread", "-LSTUB", "-l:libcudart.so.12", "-Wl,-rpath,STUB", "-Wl,-rpath-link,STUB")
CALLS, THREADS = 60_000, 3
# Where each of the flood's calls is probed once the driver is mapped.
PROBED = {
    "cudaLaunchKernel": "cuLaunchKernel",
    "cudaStreamQuery": "cuStreamQuery",
    "cudaMemset": "cudaMemset",
    "cudaStreamSynchronize": "cudaStreamSynchronize",
    "cudaMalloc": "cudaMalloc",
    "cudaFree": "cudaFree",
}
FAST = {"INGERO_STUB_KERNEL_US": "0.05"}


@contextmanager
def flooding(program: str, calls: int, threads: int, **options: Any) -> Iterator[tuple[Workload, Tracer]]:
    """A flood about to begin, and an agent that watches it alone."""
    with (
        workload(program, str(calls), str(threads), env={**os.environ, **FAST}) as job,
        tracing(pids=(job.pid,), max_overhead_share=None, **options) as tracer,
    ):
        tracer.until_target(job.pid)
        yield job, tracer


@pytest.mark.shapes
@pytest.mark.parametrize("drain", [False, True], ids=["ring overrun", "ring drained"])
def test_under_a_flood_every_call_is_counted_exactly_once(compiled: Callable[..., str], drain: bool) -> None:
    """With everything recorded into a ring of one megabyte, which cannot hold it."""
    program = compiled("flood.c", *FLOOD)
    with flooding(program, CALLS, THREADS, record_all=True, ring_bytes=1 << 20) as (job, tracer):
        if not drain:
            tracer._lock.acquire()  # the agent is held up for as long as the flood lasts
        [said] = job.go()
        if not drain:
            tracer._lock.release()
        rows = tracer.calls(job.pid)
        operations = tracer.gather("operations", job.pid)
        losses = tracer.losses()
    counted = tracer.counts(job.pid)
    for function, probed in PROBED.items():
        assert counted[probed] == said[function], function
    assert int(operations["recorded"].sum()) == len(rows)
    assert int(operations["dropped"].sum()) == losses.get("ring_call", 0)
    assert int(operations["count"].sum()) == len(rows) + losses.get("ring_call", 0)
    assert int(rows["weight"].sum()) + int(tracer.agent._reader.operations.unsampled()["calls"].sum()) == int(
        operations["count"].sum()
    )
    if not drain:
        assert losses["ring_call"] > 0, "the ring was not overrun, so nothing was shown"


def test_by_default_most_calls_are_histogram_only_and_all_are_counted(compiled: Callable[..., str]) -> None:
    with flooding(compiled("flood.c", *FLOOD), CALLS, THREADS) as (job, tracer):
        [said] = job.go()
        rows = tracer.calls(job.pid)
        operations = tracer.gather("operations", job.pid)
        left = tracer.agent._reader.operations.unsampled()
    counted = tracer.counts(job.pid)
    for function, probed in PROBED.items():
        assert counted[probed] == said[function], function
    assert tracer.losses().get("ring_call", 0) == 0
    assert len(rows) == int(operations["recorded"].sum())
    assert len(rows) < int(operations["count"].sum()) / 5
    by_record: dict[str, int] = {}
    for row in rows:
        by_record[NAMES[int(row["op"])]] = by_record.get(NAMES[int(row["op"])], 0) + int(row["weight"])
    for row in left:
        by_record[NAMES[int(row["op"])]] = by_record.get(NAMES[int(row["op"])], 0) + int(row["calls"])
    assert by_record["cuLaunchKernel"] == said["cudaLaunchKernel"], "weights stand for every call"


def test_the_histogram_agrees_with_the_counts(compiled: Callable[..., str]) -> None:
    with flooding(compiled("flood.c", *FLOOD), 5000, 2) as (job, tracer):
        job.go()
        tracer.tick()
    for row in tracer.gather("operations", job.pid):
        assert int(row["slots"].sum()) == int(row["count"])
        assert int(row["split"].sum()) == int(row["sum_ns"])
        assert (
            int(row["min_ns"]) * int(row["count"])
            <= int(row["sum_ns"])
            <= int(row["max_ns"]) * int(row["count"])
        )


def test_many_new_operations_at_once_are_all_counted() -> None:
    """A burst of first calls outruns the kernel's stock of memory for counters; none may be missed."""
    with workload("calls23.py", "--forks", "30") as job, tracing(pids=(job.pid,)) as tracer:
        tracer.until_target(job.pid)
        said = job.go()
        tracer.tick()
        pids = {made["pid"] for made in said}
        counted = tracer.counts(*pids)
    assert len(pids) == 30
    for function in ("cudaMalloc", "cudaFree", "cudaMemcpy", "cudaStreamSynchronize", "cudaFreeHost"):
        assert counted[function] == sum(made["function"] == function for made in said), function
    assert counted["cuLaunchKernel"] == 60
    assert "histogram_full" not in tracer.losses()


def test_samples_stand_for_the_calls_where_they_were_made() -> None:
    """Bursts of calls, with rests between them: what is counted is calls, not when they came."""
    with tracing() as tracer, workload("bursts.py", "120") as job:
        tracer.until_target(job.pid)
        tracer.tick()
        [said] = job.go()
        rows = tracer.calls(job.pid)
        rows = rows[rows["bytes"] > 0]
    weights = {size: int(rows["weight"][rows["bytes"] == int(size)].sum()) for size in said}
    assert len(rows) > 40
    shares = {size: weight / sum(weights.values()) for size, weight in weights.items()}
    assert shares["512"] == pytest.approx(0.1, abs=0.09)
