"""Slow peer: the job waits for an answer of a process that is not part of it.

Shows as   the feeding thread, or its worker, blocked on a socket or pipe.
Proof      that waiting, and who ended it, where that is a process of this machine.
Not this   a server that waits for requests (a rank that listens for the other ranks is
           no server); a parent that hands out work; the job's own workers (data-starvation);
           lost packets (network-retransmits).
Blind to   what a peer on another machine does.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import Lost
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors import proofs
from ingero.detectors.commands import look
from ingero.detectors.detector import LOST, WAITS_FOR, Case, Detector, Evidence
from ingero.detectors.network_retransmits import by_network
from ingero.model.finding import Fix


def _waits_for_stranger(lost: Lost, job: Job, timeline: Timeline) -> bool:
    if lost.rare or lost.bucket not in ("net_wait", "peer_wait", "host_cpu", "sleep"):
        return False
    known = timeline.facts.processes.get(job.pid)
    if known and known.serves:
        return False  # it waits to be asked
    if lost.via and timeline.family.works_for(job.pid, lost.pid) and lost.pid != job.pid:
        return False  # a parent that hands out work: it may wait to be asked itself
    if lost.bucket == "net_wait":
        return True
    stranger = not timeline.family.related(lost.pid, job.pid)
    return bool(lost.via) and stranger


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job in timeline.jobs:
        for each in job.slices:
            causes = tuple(
                lost
                for lost in each.lost
                if _waits_for_stranger(lost, job, timeline)
                and not by_network(timeline, job, each.number, lost)
            )
            if causes:
                yield Evidence(job, each, sum(lost.ns for lost in causes), causes)


def headline(case: Case) -> str:
    if case.who:
        return f"{case.job.comm} waits for answers from {case.first_who()}"
    return f"{case.job.comm} waits for answers over the network"


def advise(case: Case) -> list[Fix]:
    fixes = [Fix("Prefetch: ask for the next answer while the GPU works on this one.")]
    if case.who:
        text = f"See what {case.first_who()} is doing."
        fixes.insert(0, look(case.timeline.facts, case.who[0].pid, text, "sudo cat /proc/{}/stack"))
    return fixes


DETECTOR = Detector(
    name="slow-peer",
    needs=frozenset({"calls", "sched", "wakers"}),
    find=find,
    headline=headline,
    prove=proofs.waits,
    advise=advise,
    confidence=0.8,
    lines=(WAITS_FOR, LOST),
)
