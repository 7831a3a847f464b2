"""Synchronising too often: host and GPU take turns instead of working at the same time.

Shows as   many synchronising calls per iteration, or small copies that read values back and
           wait, each with little work before it.
Proof      their number per iteration; the time the job waited for the GPU, and the time the GPU
           had nothing to do. If both happened at the same time, the shorter of the two would vanish.
Not this   one wait per iteration, or per graph launched: a token, a request; a millisecond or more of
           work between a wait and the next piece of GPU work: that work is what costs (data-starvation).
Blind to   waits by polling (cudaStreamQuery in a loop); what each wait itself costs, mostly
           waking up (that would be won, too); how long an iteration is, if frequent calls are watched
           only a part of the time (a service that answers thousands of small requests a second, with
           a wait each, may then look like a loop that waits too often); values that are read back and
           then worked on for a millisecond each, such as printed (told as data-starvation).
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import Lost, SliceLedger
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.detector import Case, Detector, Evidence, LineChoice
from ingero.model.finding import Fix, Proof

PER_STEP = 5  # a loop reads its loss and checks for overflow; more is a habit
READING = 0.5  # of the time after a wait: looking at the result; the rest would be done anyway
OWN_NS = 1_000_000  # on a core between a wait and the next work: more is no looking at a result
WORK_PER_SYNC = 20  # with more launches in between, the queue is deep enough


def _serialised_ns(job: Job, each: SliceLedger) -> int:
    steps, syncs = job.steps(each.number), job.waits(each.number)
    launches, graphs = job.spent(each.number, "launch").count, job.spent(each.number, "graph").count
    if not steps or syncs < PER_STEP * steps or launches > WORK_PER_SYNC * syncs:
        return 0
    if 2 * graphs > syncs:  # a graph per wait: a token, a request
        return 0
    host = each.ns["host_cpu"] + each.ns["cuda_cpu"]
    idle = each.gap["host_cpu"] + each.gap["cuda_cpu"]
    if each.gap["host_cpu"] >= OWN_NS * syncs:
        return 0
    reading = READING * idle
    return int(min(host, each.ns["gpu_wait"] + reading) * (1 - steps / syncs))


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job in timeline.jobs:
        for each in job.slices:
            ns = 0 if each.cold else _serialised_ns(job, each)
            if ns:
                yield Evidence(job, each, ns, (Lost("gpu_wait", ns, job.pid, job.tid, job.comm),))


def _per_step(case: Case) -> float:
    syncs = sum(case.job.waits(each.slice.number) for each in case.evidence)
    return syncs / max(case.steps(), 1)


def headline(case: Case) -> str:
    return f"{case.job.comm} waits for the GPU {_per_step(case):.0f} times per iteration"


def prove(case: Case) -> list[Proof]:
    syncs = sum(case.job.waits(each.slice.number) for each in case.evidence)
    return [
        Proof(
            f"{syncs} waits for the GPU in {case.steps()} iterations",
            "SELECT op, SUM(count) FROM operations WHERE (op LIKE '%Synchronize%' OR op LIKE '%DtoH%')"
            f" AND pid = {case.job.pid} AND {case.span_sql} GROUP BY op",
        )
    ]


def advise(case: Case) -> list[Fix]:
    return [
        Fix("Keep results on the GPU; read them once per iteration or less often (.item(), .cpu())."),
        Fix("Let PyTorch warn where it happens.", code="torch.cuda.set_sync_debug_mode('warn')"),
    ]


DETECTOR = Detector(
    name="sync-heavy",
    needs=frozenset({"calls", "sched"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    confidence=0.85,
    lines=(
        LineChoice("count", "waits for the GPU most often", kinds=("sync",)),
        LineChoice("ns", "waits for the GPU longest", kinds=("sync",)),
    ),
)
