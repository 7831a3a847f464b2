"""Memory pressure: the Linux kernel takes memory back while the job wants to run.

Shows as   time in direct reclaim, compaction and page faults of the feeding thread or of
           the thread it waits for; under a memory limit also reads of pages just dropped.
Proof      time inside reclaim's begin and end, and blocked in faults.
Not this   the first touch of new memory, which is quick; a kill (oom-kill).
Blind to   memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import SliceLedger
from ingero.correlate.timeline import Timeline
from ingero.detectors import proofs
from ingero.detectors.commands import look
from ingero.detectors.detector import LOST, WAITS_FOR, Case, Detector, Evidence
from ingero.model.finding import Fix

# Where reclaim takes this part of all waiting for memory and disk, the reads are of pages
# that reclaim dropped.
THRASHING = 0.33


def thrashes(each: SliceLedger) -> bool:
    memory, disk = each.lost_ns("memory_wait"), each.lost_ns("disk_wait")
    return memory > 0 and memory >= THRASHING * (memory + disk)


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job, each, found in timeline.lost("memory_wait"):
        if thrashes(each):
            found = [lost for lost in each.lost if lost.bucket in ("memory_wait", "disk_wait")]
        yield Evidence(job, each, sum(lost.ns for lost in found), tuple(found))


def headline(case: Case) -> str:
    main = case.main
    who = (
        f"{main.comm} (pid {main.pid}), which {case.job.comm} waits for,"
        if main and main.via
        else case.job.comm
    )
    return f"{who} waits while the kernel frees memory"


def advise(case: Case) -> list[Fix]:
    return [
        look(
            case.timeline.facts,
            case.job.pid,
            "See which limit it hits.",
            "cat /proc/{}/cgroup; grep -E 'Mem|Swap' /proc/meminfo",
        ),
        Fix("Raise the memory limit, or use fewer workers, smaller prefetch_factor, less pinned memory."),
    ]


DETECTOR = Detector(
    name="memory-pressure",
    needs=frozenset({"calls", "sched", "memory"}),
    find=find,
    headline=headline,
    prove=proofs.waits,
    advise=advise,
    lines=(LOST, WAITS_FOR),
)
