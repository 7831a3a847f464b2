"""Data starvation: the GPU idles because the next batch is not ready.

Shows as   the feeding thread waits for its workers or its loading thread, or prepares
           the data itself, while the GPU has nothing to do.
Proof      waits of the feeding thread that a worker ended, and what that worker did
           meanwhile: computing, sleeping, or waiting for a core that other workers had;
           or work of the feeding thread that the GPU did not hide, beyond what its
           calls take.
Not this   workers that wait for the disk (disk-wait) or for memory (memory-pressure),
           or whose cores strangers take (cpu-contention); compiling at the start.
Blind to   input prepared by processes of other jobs (shown as slow-peer); what the thread
           computes (a garbage collection that is not watched is taken for its data); a
           second stream that keeps the GPU busy while this one is waited for; the thread's own
           work among so many calls that not all are watched (taken for making these calls);
           data that is meant to come slowly, such as a camera's frames or a simulator in real time;
           the line that asked for more workers than cores (the line told is what they compute); the first
           minute of a job that never gives the GPU work for three seconds in a row (it may be starting).
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import Lost, SliceLedger
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors import proofs
from ingero.detectors.detector import LOST, WAITS_FOR, Case, Detector, Evidence, LineChoice
from ingero.detectors.disk_wait import io_ns
from ingero.model.finding import Fix

WORKING = ("host_cpu", "cuda_cpu", "sleep")
# A program does something between two steps; nearly a third of the time is no bookkeeping any more.
OWN_SHARE = 0.30
# Work of less than this between two pieces of GPU work is the way programs are, not data.
OWN_NS = 1_000_000
CALLING = ("launch", "copy", "set", "sync", "graph", "event", "alloc", "free", "collective")
WAITS_SHARE = 0.05  # of the time: who waits that long for the GPU is not slower than it
PER_CALL_NS = 30_000  # Python and a framework around one call; eager PyTorch takes 10 to 25 us
STARTING_NS = 180_000_000_000  # compiling a large model takes minutes
IN_SPIKES = 0.6
SLOW_START = 3  # times fewer iterations than usual


def _by_workers(lost: Lost, job: Job, timeline: Timeline) -> bool:
    known = timeline.facts.processes.get(job.pid)
    if lost.bucket == "sleep" and known and known.serves:
        return False  # a client that has nothing to ask
    if lost.via and lost.bucket in WORKING and not lost.rare:
        return timeline.family.works_for(lost.pid, job.pid)
    crowded = lost.bucket == "runqueue" and lost.whose == "own"
    return crowded and any(part.pid != job.pid for part in lost.who)


def _unhidden_ns(job: Job, each: SliceLedger) -> int:
    """Work on the CPU in which the GPU had nothing to do, or had long finished.

    A thread that works on after a launch and then has nothing to wait for was slower than
    the GPU, beyond what making the calls takes; one that waits was not.
    """
    calls = job.spent(each.number, *CALLING)
    made = calls.count + calls.error  # or more work than there is would be found where calls were not seen
    later = each.ns["host_cpu"] - each.gap["host_cpu"] - made * PER_CALL_NS
    if each.ns["gpu_wait"] > WAITS_SHARE * each.wall_ns:
        later = 0
    return each.gap["host_cpu"] + max(0, later) - job.spent(each.number, "gc").ns - io_ns(each)


def _by_itself(job: Job, each: SliceLedger) -> Lost | None:
    ns = _unhidden_ns(job, each)
    pauses = max(job.steps(each.number), job.waits(each.number), 1)
    if ns < OWN_SHARE * each.wall_ns or ns / pauses < OWN_NS:
        return None
    return Lost("host_cpu", ns, job.pid, job.tid, job.comm)


def _in_spikes(job: Job) -> bool:
    """Most of that work is done in a few long iterations: periodic-spike's matter."""
    own = sum(_unhidden_ns(job, each) for each in job.slices)
    return len(job.spikes) > 0 and int(job.spikes[:, 1].sum()) > IN_SPIKES * own


def _starting(timeline: Timeline, job: Job) -> int:
    """Until which slice a young process may still be compiling: its first iterations are few."""
    process = timeline.facts.processes.get(job.pid)
    if process is None or process.start_ns is None or not job.loop:
        return -1
    counts = [job.steps(each.number) for each in job.slices]
    pace = sorted(counts)[len(counts) // 2]
    last = -1
    for each in job.slices:
        young = timeline.facts.at_ns(each.number) - process.start_ns <= STARTING_NS
        if not young or job.steps(each.number) * SLOW_START > pace:
            break
        last = each.number
    return last


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job in timeline.jobs:
        starting = _starting(timeline, job)
        in_spikes = _in_spikes(job)
        for each in job.slices:
            causes = [lost for lost in each.lost if _by_workers(lost, job, timeline)]
            own = None if each.cold or in_spikes or each.number <= starting else _by_itself(job, each)
            if own:
                causes.append(own)
            if causes:
                yield Evidence(job, each, sum(lost.ns for lost in causes), tuple(causes))


def _workers(case: Case) -> set[int]:
    return {lost.pid if lost.pid != case.job.pid else lost.tid for lost in case.causes if lost.via}


def headline(case: Case) -> str:
    main = case.main
    if main is None or (not main.via and main.bucket == "host_cpu"):
        return f"{case.job.comm} works on the CPU while the GPU has nothing to do"
    if main.bucket == "runqueue":
        return f"More busy workers than cores: {case.job.comm} waits for cores that its own workers use"
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
                f"Use {max(1, case.cores - 1)} worker{'s' * (case.cores > 2)} to prepare batches ahead.",
                code=f"DataLoader(..., num_workers={max(1, case.cores - 1)}, persistent_workers=True,"
                " pin_memory=True)",
            ),
            Fix("Index whole batches instead of items; move per-item work to the GPU or out of the loop."),
        ]
    if main.bucket == "runqueue":
        return [
            Fix(
                f"Use fewer workers than the {case.cores} cores.",
                code=f"DataLoader(..., num_workers={max(1, case.cores - 1)})",
            )
        ]
    many = len(_workers(case))
    fixes = []
    if many < case.cores - 1:
        fixes.append(
            Fix(
                f"Add workers: {many} feed the job now, and it may use {case.cores} cores.",
                code=f"DataLoader(..., num_workers={case.cores - 1}, persistent_workers=True,"
                " prefetch_factor=4)",
            )
        )
    fixes.append(Fix(f"Make the work per item cheaper: that is what {main.comm} spends its time on."))
    return fixes


DETECTOR = Detector(
    name="data-starvation",
    needs=frozenset({"calls", "sched"}),
    find=find,
    headline=headline,
    prove=proofs.waits,
    advise=advise,
    # Where its own workers have the cores it waits at every line alike: what they compute is the one to know.
    lines=(WAITS_FOR, LineChoice("sample", "the workers compute", of="crowd"), LOST),
)
