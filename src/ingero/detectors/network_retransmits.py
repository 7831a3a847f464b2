"""Network retransmits: packets of the job's connections are lost and sent again.

Shows as   the feeding thread, or the one it waits for, waiting for the network.
Proof      that waiting, and retransmitted packets on sockets of the same processes, at
           either end, in the same seconds.
Not this   a peer that is slow without losing packets (slow-peer); a server that waits to be asked.
Blind to   RDMA; retransmits at the far end of a connection.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import Lost
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors import proofs
from ingero.detectors.detector import LOST, WAITS_FOR, Case, Detector, Evidence
from ingero.model.finding import Fix, Proof

LEAST = 2  # retransmits within the slice and its neighbours; a single one happens on any network


def retransmits(timeline: Timeline, first_ns: int, last_ns: int, *pids: int) -> int:
    """Between two instants, on sockets of these processes."""
    mine = set(pids)
    return sum(
        1
        for each in timeline.facts.retransmits
        if first_ns <= each.at_ns < last_ns and (each.pid in mine or each.peer_pid in mine)
    )


def by_network_over(timeline: Timeline, job: Job, lost: Lost, first_ns: int, last_ns: int) -> bool:
    waits = lost.bucket == "net_wait" or (lost.bucket == "peer_wait" and lost.whose == "unknown")
    return waits and retransmits(timeline, first_ns, last_ns, job.pid, lost.pid) >= LEAST


def by_network(timeline: Timeline, job: Job, number: int, lost: Lost) -> bool:
    """In a slice, or in one of its neighbours."""
    facts = timeline.facts
    return by_network_over(timeline, job, lost, facts.at_ns(number - 1), facts.at_ns(number + 2))


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job, each, found in timeline.lost("net_wait", "peer_wait"):
        known = timeline.facts.processes.get(job.pid)
        if known and known.serves:
            continue  # it waits to be asked; of one that holds its clients up the verdict tells (verdict.py)
        causes = tuple(lost for lost in found if by_network(timeline, job, each.number, lost))
        if causes:
            yield Evidence(job, each, sum(lost.ns for lost in causes), causes)


def prove(case: Case) -> list[Proof]:
    pids = {case.job.pid} | {lost.pid for lost in case.causes}
    mine = [
        each
        for each in case.timeline.facts.retransmits
        if case.first_ns <= each.at_ns < case.last_ns and (each.pid in pids or each.peer_pid in pids)
    ]
    more = Proof(
        f"{len(mine)} packets sent again, to {mine[0].text}" if mine else "packets were sent again",
        f"SELECT COUNT(*) FROM events WHERE source = 6 AND timestamp >= {case.first_ns}"
        f" AND timestamp < {case.last_ns}",
        [each.event_id for each in mine[:3]],
    )
    return [more, *proofs.waits(case)]


def advise(case: Case) -> list[Fix]:
    return [
        Fix("See which connections lose packets.", "ss -ti state established"),
        Fix("Look for errors and drops on the way (cable, switch, MTU, policer).", "ip -s link"),
    ]


DETECTOR = Detector(
    name="network-retransmits",
    needs=frozenset({"calls", "sched", "tcp"}),
    find=find,
    headline=lambda case: f"{case.job.comm} waits for packets that were lost and sent again",
    prove=prove,
    advise=advise,
    lines=(LOST, WAITS_FOR),
)
