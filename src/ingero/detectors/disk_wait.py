"""Disk wait: the feeding thread, or the worker it waits for, waits for storage.

Shows as   steps longer by the time of reads, or of writes that must reach the disk.
Proof      time blocked in I/O wait, in fsync and its like, in the journal, or in a fault
           on a file, of the feeding thread or of the thread at the end of its waits.
Not this   reads that the page cache answers; writes nobody waits for.
Blind to   storage reached over the network by a user-space client (slow-peer).
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import Lost, SliceLedger
from ingero.correlate.timeline import Timeline
from ingero.detectors import proofs
from ingero.detectors.commands import look
from ingero.detectors.detector import LOST, WAITS_FOR, Case, Detector, Evidence
from ingero.detectors.memory_pressure import thrashes
from ingero.model.finding import Fix

WAITS_SHARE = 0.03  # of the time: less, and its kernel time has other reasons


def io_ns(each: SliceLedger) -> int:
    """Kernel time of a thread that waits for the disk itself: the copying of what it reads or writes."""
    waits = sum(lost.ns for lost in each.lost if lost.bucket == "disk_wait" and lost.direct)
    if waits < WAITS_SHARE * each.wall_ns:
        return 0
    return max(0, min(each.system_ns, each.ns["host_cpu"]) - each.ns["gpu_wait"])


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job, each, found in timeline.lost("disk_wait"):
        if thrashes(each):
            continue
        ns = io_ns(each)
        if ns:
            found = [*found, Lost("host_cpu", ns, job.pid, job.tid, job.comm)]
        yield Evidence(job, each, sum(lost.ns for lost in found), tuple(found))


def headline(case: Case) -> str:
    main = case.main
    if main is not None and main.via:
        return f"{case.job.comm} waits for {main.comm} (pid {main.pid}), which waits for the disk"
    return f"{case.job.comm} waits for the disk while the GPU has nothing to do"


def advise(case: Case) -> list[Fix]:
    main = case.main
    pid = main.pid if main else case.job.pid
    return [
        look(case.timeline.facts, pid, "See which files it waits for.", "ls -l /proc/{}/fd"),
        Fix("If it reads: read ahead with more workers, or move the data to faster storage or memory."),
        Fix("If it writes checkpoints: write them from another process, or to memory first."),
    ]


DETECTOR = Detector(
    name="disk-wait",
    needs=frozenset({"calls", "sched"}),
    find=find,
    headline=headline,
    prove=proofs.waits,
    advise=advise,
    lines=(LOST, WAITS_FOR),
)
