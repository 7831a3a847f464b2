"""Copy-bound: moving data to or from the GPU takes the time, and slowly.

Shows as   the feeding thread inside copy calls.
Proof      bytes and time of the copies: large ones far below what the bus carries go
           through pageable memory; thousands of small ones cost their calls.
Not this   copies that are few, or as quick as the bus; waiting for the GPU at a copy.
Blind to   copies that run on the GPU's own engine while the host goes on; how much of a
           blocking copy to the host is copying: all of it counts as waiting for the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import Lost, SliceLedger
from ingero.correlate.timeline import Job, Spent, Timeline
from ingero.detectors.detector import Case, Detector, Evidence
from ingero.model.finding import Fix, Proof
from ingero.units import format_bytes, format_ns

BUS_BYTES_PER_NS = 20.0  # pinned memory over PCIe 4 x16; newer buses carry more
SLOW_BYTES_PER_NS = 10.0  # pageable copies reach 3 to 8
LARGE_BYTES = 128 << 10
SMALL_BYTES = 64 << 10
MANY_PER_STEP = 16


def _copying_ns(spent: Spent) -> int:
    """Without the time in which a blocking copy waited for the GPU to get there."""
    return max(spent.ns - spent.gpu_wait_ns, 0)


def _slow_ns(spent: Spent) -> int:
    """Large copies: what a pinned one would have saved."""
    if not spent.count or spent.bytes / spent.count < LARGE_BYTES:
        return 0
    ns = _copying_ns(spent)
    if spent.bytes / max(ns, 1) >= SLOW_BYTES_PER_NS:
        return 0
    return int(ns - spent.bytes / BUS_BYTES_PER_NS)


def _small_ns(job: Job, each: SliceLedger, spent: Spent) -> int:
    """Small copies: their calls, and the host's part of making them."""
    steps = max(job.steps(each.number), 1)
    if spent.count < MANY_PER_STEP * steps or spent.bytes / spent.count > SMALL_BYTES:
        return 0
    calls = spent.count + job.spent(each.number, "launch", "sync", "set", "event").count
    host = (each.ns["host_cpu"] + each.ns["cuda_cpu"]) * spent.count // calls
    ns = _copying_ns(spent)
    return max(ns, min(host, 4 * ns))


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job in timeline.jobs:
        for each in job.slices:
            spent = job.spent(each.number, "copy")
            ns = 0 if each.cold or not spent.count else max(_slow_ns(spent), _small_ns(job, each, spent))
            if ns > 0:
                yield Evidence(job, each, ns, (Lost("cuda_cpu", ns, job.pid, job.tid, job.comm),))


def _total(case: Case) -> Spent:
    total = Spent()
    for each in case.evidence:
        one = case.job.spent(each.slice.number, "copy")
        total.count += one.count
        total.ns += one.ns
        total.bytes += one.bytes
        total.gpu_wait_ns += one.gpu_wait_ns
    return total


def headline(case: Case) -> str:
    total = _total(case)
    size = total.bytes / max(total.count, 1)
    if size <= SMALL_BYTES:
        return f"{case.job.comm} makes {total.count} copies of {format_bytes(size)} each"
    rate = total.bytes / max(_copying_ns(total), 1)
    return f"{case.job.comm} copies at {rate:.1f} GB/s, as from pageable memory"


def prove(case: Case) -> list[Proof]:
    total = _total(case)
    return [
        Proof(
            f"{total.count} copies of {format_bytes(total.bytes)} took {format_ns(total.ns)}",
            "SELECT op, SUM(count), SUM(bytes), SUM(sum_ns) FROM operations WHERE op LIKE '%Memcpy%'"
            f" AND pid = {case.job.pid} AND {case.span_sql} GROUP BY op",
        )
    ]


def advise(case: Case) -> list[Fix]:
    total = _total(case)
    if total.bytes / max(total.count, 1) <= SMALL_BYTES:
        return [Fix("Gather small tensors into one buffer and copy that once per iteration.")]
    return [
        Fix(
            "Copy from pinned memory, asynchronously.",
            "DataLoader(..., pin_memory=True) and tensor.to(device, non_blocking=True)",
        )
    ]


DETECTOR = Detector(
    name="copy-bound",
    title="Copies to and from the GPU take the time",
    needs=frozenset({"calls", "sched"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    confidence=0.85,
)
