"""Shared GPU: another process works on the same GPU and the two take turns.

Shows as   waits for the GPU that are longer than the job's own work needs.
Proof      both processes feed the same GPU in the same seconds. The job's waiting is divided
           by how much each of them keeps the GPU busy. For a process outside the trace, the
           driver says how long its CUDA kernels ran (NVML).
Not this   ranks of one communicator; processes on different GPUs, or in different
           instances of one (MIG); one that only holds memory; the job's own helpers.
Blind to   processes outside the trace, if the driver does not tell of them (no NVML, another
           PID name space); how the GPU divides its time; the GPU of a process that never
           chose one (the first is assumed).
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import LossPart, Lost, SliceLedger
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.detector import Case, Detector, Evidence
from ingero.model.finding import Fix, Proof

WAITS_SHARE = 0.10  # of wall time: below that the GPU is not the limit
WORKS_SHARE = 0.05  # of the time its kernels run: less is a desktop, or a tool that looks at the GPU
GO_BETWEEN = "nvidia-cuda-mps"  # works for others, the job itself among them
GIVING = ("launch", "graph", "copy", "set")


def _same_card(timeline: Timeline, one: Job, other: Job) -> bool:
    cards = timeline.cards
    first = {0}  # the GPU of a process that chose none
    return bool((cards.of(one.pid) or first) & (cards.of(other.pid) or first))


def _partners(timeline: Timeline) -> set[tuple[int, int]]:
    """Processes that belong to one communicator."""
    members: dict[int, set[int]] = {}
    for each in timeline.arrivals:
        members.setdefault(each.comm_hash, set()).add(each.pid)
    return {(one, other) for group in members.values() for one in group for other in group}


def _busy_ns(job: Job, each: SliceLedger) -> int:
    """How long the job kept the GPU busy, as far as its thread waited for it; 0: not worth counting."""
    ns = each.ns["gpu_wait"]
    return ns if ns >= WAITS_SHARE * each.wall_ns and job.spent(each.number, *GIVING).count else 0


def _busy_by_slice(timeline: Timeline) -> dict[int, list[tuple[Job, int]]]:
    found: dict[int, list[tuple[Job, int]]] = {}
    for job in timeline.jobs:
        for each in job.slices:
            ns = _busy_ns(job, each)
            if ns:
                found.setdefault(each.number, []).append((job, ns))
    return found


def _strangers(timeline: Timeline, job: Job, each: SliceLedger, own: int) -> list[LossPart]:
    """Processes outside the trace whose kernels run on the job's GPU, with their part of its waits."""
    jobs = {other.pid for other in timeline.jobs} | {timeline.facts.agent_pid}
    whole = {gpu_id for gpu_id in timeline.cards.of(job.pid) if not timeline.cards.card(gpu_id).mig}
    return [
        LossPart(user.pid, _name(timeline, user.pid), int(own * min(1.0, user.sm_share)))
        for user in timeline.cards.users(each.number, whole)
        if user.sm_share is not None and user.sm_share >= WORKS_SHARE
        if user.pid not in jobs and not timeline.family.related(user.pid, job.pid)
        if not _name(timeline, user.pid).startswith(GO_BETWEEN)
    ]


def _name(timeline: Timeline, pid: int) -> str:
    return timeline.facts.comm(pid) if pid in timeline.facts.processes else timeline.cards.name(pid)


def find(timeline: Timeline) -> Iterator[Evidence]:
    if len(timeline.jobs) < 2 and not timeline.cards.watched:
        return
    partners, busy = _partners(timeline), _busy_by_slice(timeline)
    for job in timeline.jobs:
        rivals = {
            other.pid
            for other in timeline.jobs
            if other.pid != job.pid
            and (job.pid, other.pid) not in partners
            and _same_card(timeline, job, other)
        }
        for each in job.slices:
            own = _busy_ns(job, each)
            at_once = busy.get(each.number, []) if own else []
            others = [LossPart(other.pid, other.comm, ns) for other, ns in at_once if other.pid in rivals]
            strangers = _strangers(timeline, job, each, own) if own else []
            ns = min(own, _jobs_part_ns(each, own, others) + sum(part.ns for part in strangers))
            if ns:
                who = tuple(others + strangers)
                lost = Lost("gpu_wait", ns, job.pid, job.tid, job.comm, who=who, whose="others")
                yield Evidence(job, each, ns, (lost,))


def _jobs_part_ns(each: SliceLedger, own: int, others: list[LossPart]) -> int:
    """Of a job's waits for the GPU, what falls to the other jobs."""
    theirs = sum(part.ns for part in others)
    # Two that use little of the GPU seldom meet.
    meet = min(1.0, (own + theirs) / max(each.wall_ns, 1))
    return int(own * theirs / (own + theirs) * meet) if theirs else 0


def headline(case: Case) -> str:
    return f"{case.job.comm} shares its GPU with {case.first_who()}"


def prove(case: Case) -> list[Proof]:
    pids = ", ".join(str(pid) for pid in [case.job.pid, *(part.pid for part in case.who[:3])])
    traced = {job.pid for job in case.timeline.jobs}
    if any(part.pid not in traced for part in case.who[:3]):
        return [
            Proof(
                f"kernels of processes {pids} ran on the same GPU in the same seconds",
                "SELECT pid, comm, gpu_id, AVG(sm_share), MAX(memory_bytes) FROM gpu_processes"
                f" WHERE pid IN ({pids}) AND timestamp_ns >= {case.first_ns}"
                f" AND timestamp_ns < {case.last_ns} GROUP BY pid, gpu_id",
            )
        ]
    return [
        Proof(
            f"processes {pids} gave the same GPU work in the same seconds",
            "SELECT pid, bucket_start_ns, SUM(count) FROM operations WHERE op LIKE '%Launch%'"
            f" AND pid IN ({pids}) AND {case.span_sql} GROUP BY pid, bucket_start_ns",
        )
    ]


def advise(case: Case) -> list[Fix]:
    return [
        Fix(
            "Start one of them on a free GPU: set CUDA_VISIBLE_DEVICES to its index.",
            "nvidia-smi --query-gpu=index,name,utilization.gpu,memory.used --format=csv",
        ),
        Fix("Or run them side by side instead of in turns (MPS).", "nvidia-cuda-mps-control -d"),
        Fix("Or partition the GPU (MIG), if it can be."),
    ]


DETECTOR = Detector(
    name="gpu-shared",
    needs=frozenset({"calls", "sched"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    confidence=0.8,
)
