"""Data starvation: the GPU idles because the next batch is not ready.

Shows as   the feeding thread waits for its workers or its loading thread, or prepares
           the data itself, while the GPU has nothing to do.
Proof      waits of the feeding thread that a worker ended, and what that worker did
           meanwhile: computing, sleeping, or waiting for a core that other workers had;
           or work of the feeding thread between two pieces of work for the GPU.
Not this   workers that wait for the disk (disk-wait) or for memory (memory-pressure),
           or whose cores strangers take (cpu-contention).
Blind to   input prepared by processes of other jobs (shown as slow-peer).
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import Lost, SliceLedger
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors import proofs
from ingero.detectors.detector import Case, Detector, Evidence
from ingero.model.finding import Fix

WORKING = ("host_cpu", "cuda_cpu", "sleep")
# A program works between two steps; that is a fault only when the GPU stands still for
# longer than it works because of it.
OWN_SHARE = 0.40
# Work of less than this between two pieces of GPU work is the way programs are, not data.
OWN_NS = 1_000_000


def _by_workers(lost: Lost, job: Job, timeline: Timeline) -> bool:
    if lost.via and lost.bucket in WORKING:
        return timeline.family.works_for(lost.pid, job.pid)
    crowded = lost.bucket == "runqueue" and lost.whose == "own"
    return crowded and any(part.pid != job.pid for part in lost.who)


def _by_itself(job: Job, each: SliceLedger) -> Lost | None:
    ns = each.gap["host_cpu"] - job.spent(each.number, "gc").ns
    pauses = max(job.steps(each.number), 1)
    if ns < OWN_SHARE * each.wall_ns or ns / pauses < OWN_NS:
        return None
    syncs = job.spent(each.number, "sync").count
    if job.loop and syncs and ns / syncs < OWN_NS:
        return None
    return Lost("host_cpu", ns, job.pid, job.tid, job.comm)


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job in timeline.jobs:
        for each in job.slices:
            causes = [lost for lost in each.lost if _by_workers(lost, job, timeline)]
            own = None if each.cold else _by_itself(job, each)
            if own:
                causes.append(own)
            if causes:
                yield Evidence(job, each, sum(lost.ns for lost in causes), tuple(causes))


def _workers(case: Case) -> set[int]:
    return {lost.tid for lost in case.causes if lost.via}


def headline(case: Case) -> str:
    main = case.main
    if main is None or (not main.via and main.bucket == "host_cpu"):
        return f"{case.job.comm} prepares its data itself while the GPU waits"
    if main.bucket == "runqueue":
        return f"More busy workers than cores: {case.job.comm} waits for its own workers' cores"
    many = len(_workers(case))
    doing = "sleep" if main.bucket == "sleep" else "compute"
    return (
        f"The GPU waits for data: {many} {main.comm} {'threads' if main.pid == case.job.pid else 'workers'}"
        f" {doing} while {case.job.comm} waits"
    )


def advise(case: Case) -> list[Fix]:
    main = case.main
    if main is None or (not main.via and main.bucket == "host_cpu"):
        return [
            Fix(
                "Let workers prepare batches ahead.",
                f"DataLoader(..., num_workers={max(1, case.cores - 1)}, persistent_workers=True,"
                " pin_memory=True)",
            ),
            Fix("Index whole batches instead of items; move per-item work to the GPU or out of the loop."),
        ]
    if main.bucket == "runqueue":
        return [
            Fix(
                f"Use fewer workers than the {case.cores} cores.",
                f"DataLoader(..., num_workers={max(1, case.cores - 1)})",
            )
        ]
    many = len(_workers(case))
    fixes = []
    if many < case.cores - 1:
        fixes.append(
            Fix(
                f"Add workers: {many} of them feed the job, the machine has {case.cores} cores.",
                f"DataLoader(..., num_workers={case.cores - 1}, persistent_workers=True, prefetch_factor=4)",
            )
        )
    fixes.append(Fix(f"Make the work per item cheaper: that is what {main.comm} spends its time on."))
    return fixes


DETECTOR = Detector(
    name="data-starvation",
    title="The GPU waits for data",
    needs=frozenset({"calls", "sched"}),
    find=find,
    headline=headline,
    prove=proofs.waits,
    advise=advise,
)
