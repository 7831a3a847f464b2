"""Shared GPU: another process works on the same card and the two take turns.

Shows as   waits for the GPU that are longer than the job's own work needs.
Proof      both processes feed the same card in the same seconds; the part of the job's
           waiting that falls to the other, by how much each keeps the card busy.
Not this   ranks of one communicator; processes on different cards.
Blind to   processes outside the trace; how the card divides its time.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import Lost, Part, SliceLedger
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.detector import Case, Detector, Evidence
from ingero.model.finding import Fix, Proof

WAITS_SHARE = 0.10  # of wall time: below that the card is not the limit
GIVING = ("launch", "graph", "copy", "set")


def _same_card(timeline: Timeline, one: Job, other: Job) -> bool:
    cards = timeline.facts.gpus
    known = cards.get(one.pid), cards.get(other.pid)
    return bool(known[0] & known[1]) if known[0] and known[1] else True


def _partners(timeline: Timeline) -> set[tuple[int, int]]:
    """Processes that belong to one communicator."""
    members: dict[int, set[int]] = {}
    for each in timeline.facts.arrivals:
        members.setdefault(each.comm_hash, set()).add(each.pid)
    return {(one, other) for group in members.values() for one in group for other in group}


def _busy_ns(job: Job, number: int) -> int:
    """How long the job kept the card busy, as far as its thread waited for it."""
    each = next((one for one in job.slices if one.number == number), None)
    gave = job.spent(number, *GIVING).count if each else 0
    return each.ns["gpu_wait"] if each and gave else 0


def _others(timeline: Timeline, job: Job, each: SliceLedger, partners: set[tuple[int, int]]) -> list[Part]:
    found = []
    for other in timeline.jobs:
        if other.pid == job.pid or (job.pid, other.pid) in partners or not _same_card(timeline, job, other):
            continue
        ns = _busy_ns(other, each.number)
        if ns >= WAITS_SHARE * each.wall_ns:
            found.append(Part(other.pid, other.comm, ns))
    return found


def find(timeline: Timeline) -> Iterator[Evidence]:
    if len(timeline.jobs) < 2:
        return
    partners = _partners(timeline)
    for job in timeline.jobs:
        for each in job.slices:
            own = _busy_ns(job, each.number)
            others = _others(timeline, job, each, partners) if own >= WAITS_SHARE * each.wall_ns else []
            if others:
                theirs = sum(part.ns for part in others)
                ns = int(own * theirs / (own + theirs))
                lost = Lost("gpu_wait", ns, job.pid, job.tid, job.comm, who=tuple(others), whose="others")
                yield Evidence(job, each, ns, (lost,))


def headline(case: Case) -> str:
    return f"{case.job.comm} shares its GPU with {case.first_who()}"


def prove(case: Case) -> list[Proof]:
    pids = ", ".join(str(pid) for pid in [case.job.pid, *(part.pid for part in case.who[:3])])
    return [
        Proof(
            f"processes {pids} gave the same card work in the same seconds",
            "SELECT pid, bucket_start_ns, SUM(count) FROM operations WHERE op LIKE '%Launch%'"
            f" AND pid IN ({pids}) AND {case.span_sql} GROUP BY pid, bucket_start_ns",
        )
    ]


def advise(case: Case) -> list[Fix]:
    return [
        Fix("Start one of them on another card.", "CUDA_VISIBLE_DEVICES=1 python ..."),
        Fix("Or let them run side by side instead of in turns.", "nvidia-cuda-mps-control -d"),
        Fix("Or divide the card (MIG) where it can."),
    ]


DETECTOR = Detector(
    name="gpu-shared",
    title="Another process works on the same GPU",
    needs=frozenset({"calls", "sched"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    confidence=0.8,
)
