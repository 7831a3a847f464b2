"""Allocation churn: GPU memory is allocated and freed in every iteration.

Shows as   calls of cudaMalloc and cudaFree in the loop; a free also waits for the GPU.
Proof      their number per iteration and the time inside them, after start-up.
Not this   allocations during start-up; a caching allocator that grows and then rests.
Blind to   what an allocation inside a library's own pool costs.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import Lost, SliceLedger
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.detector import Case, Detector, Evidence, LineChoice
from ingero.model.finding import Fix, Proof
from ingero.units import format_ns

FAILING = 0.1  # of the allocations
PER_STEP = 0.5  # a caching allocator makes none once it is warm; logging makes one now and then


def _churn_ns(job: Job, each: SliceLedger) -> int:
    allocated, freed = job.spent(each.number, "alloc"), job.spent(each.number, "free")
    steps = job.steps(each.number)
    if allocated.errors > FAILING * allocated.count:  # cuda-oom's matter
        return 0
    if not steps or min(allocated.count, freed.count) < max(PER_STEP * steps, 2):
        return 0
    # A free also waits for the GPU, as another call would otherwise. Once the GPU has nothing
    # to do any more it waits for nobody: that is what freeing itself takes.
    waiting = max(0, freed.gpu_wait_ns - each.gap["gpu_wait"])
    return allocated.ns + freed.ns - waiting


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job in timeline.jobs:
        for each in job.slices:
            ns = 0 if each.cold else _churn_ns(job, each)
            if ns:
                yield Evidence(job, each, ns, (Lost("cuda_cpu", ns, job.pid, job.tid, job.comm),))


def _count(case: Case) -> int:
    return sum(case.job.spent(each.slice.number, "alloc").count for each in case.evidence)


def headline(case: Case) -> str:
    return (
        f"{case.job.comm} allocates GPU memory {_count(case) / max(case.steps(), 1):.0f} times per iteration"
    )


def prove(case: Case) -> list[Proof]:
    return [
        Proof(
            f"{_count(case)} allocations in {case.steps()} iterations; with the frees {format_ns(case.ns)}",
            "SELECT op, SUM(count), SUM(sum_ns), SUM(bytes) FROM operations"
            " WHERE (op LIKE '%Alloc%' OR op LIKE '%Free%' OR op LIKE '%Malloc%')"
            f" AND pid = {case.job.pid} AND {case.span_sql} GROUP BY op",
        )
    ]


def advise(case: Case) -> list[Fix]:
    return [
        Fix("Allocate once before the loop and reuse the memory."),
        Fix(
            "With PyTorch: no torch.cuda.empty_cache() in the loop; keep the caching allocator on.",
            "unset PYTORCH_NO_CUDA_MEMORY_CACHING",
        ),
    ]


DETECTOR = Detector(
    name="alloc-churn",
    needs=frozenset({"calls", "sched"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    lines=(LineChoice("count", "allocates and frees most often", kinds=("alloc", "free")),),
)
