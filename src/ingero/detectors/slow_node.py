"""The node that differs from its peers: the same command on several nodes, and one is slower.

Where ranks meet in collectives, late_ranks.py tells more. Here two things are compared: how long a
step takes, and, where the jobs are ranks of one whose steps take equally long, how long they wait for
each other: the one that hardly waits is waited for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.against_peers import Doer, Reason, in_words, reasons
from ingero.detectors.detector import Detector
from ingero.model.finding import (
    Cause,
    Effect,
    Finding,
    Fix,
    Gain,
    Proof,
    Victim,
    finding_id,
    severity_of,
)
from ingero.units import SECOND, format_ns

LEAST_NODES = 3  # of two that differ, either may be the odd one
SLOWER = 0.10  # of a step: jobs differ by some percent for no reason
SPREAD = 3.0  # times what the peers differ among themselves
SAME_PACE = 0.05  # of a step: then they go in step
LEAST_NS = SECOND // 2
WAITS = ("net_wait", "peer_wait", "lock_wait")  # for each other; a wait for the GPU may be anything
CONFIDENCE = 0.8
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Peer:
    """One node's part in a group of alike jobs: the job of it that is slowest."""

    node: str
    timeline: Timeline
    job: Job
    steps: float
    wall_ns: int
    rank: int | None

    @property
    def step_ns(self) -> float:
        return self.wall_ns / self.steps

    @property
    def waits_ns(self) -> float:
        """In a step, for others."""
        settled = self.job.settled or self.job.slices
        wall = sum(each.wall_ns for each in settled)
        waits = sum(each.ns[name] for each in settled for name in WAITS)
        return waits / max(wall, 1) * self.step_ns

    def doer(self) -> Doer:
        settled = self.job.settled or self.job.slices
        facts = self.timeline.facts
        span = facts.at_ns(settled[0].number), facts.at_ns(settled[-1].number + 1)
        return Doer(self.timeline, self.job, span, self.steps * (span[1] - span[0]) / self.wall_ns)


@dataclass(frozen=True, slots=True)
class Slow:
    """The odd one, and by how much a step is longer through it."""

    peer: Peer
    others: tuple[Peer, ...]
    excess_ns: float  # in a step
    waited_for: bool  # the others are as slow, because they wait for it

    @property
    def usual_ns(self) -> int:
        return int(self.peer.step_ns - self.excess_ns)


def groups_of(timelines: Mapping[str, Timeline], told: set[tuple[str, int]]) -> list[list[Peer]]:
    """Jobs of the same command on several nodes, one of each; `told`: those about which more is known."""
    found: dict[str, dict[str, Peer]] = defaultdict(dict)
    for node, timeline in timelines.items():
        for job in timeline.jobs:
            peer = _peer(node, timeline, job)
            known = timeline.facts.processes.get(job.pid)
            if peer is None or (node, job.pid) in told or known is None or not known.cmdline:
                continue
            mine = found[_NUMBERS.sub("#", known.cmdline.replace(node, "@"))]
            if node not in mine or peer.step_ns > mine[node].step_ns:
                mine[node] = peer
    return [list(peers.values()) for peers in found.values() if len(peers) >= LEAST_NODES]


def _peer(node: str, timeline: Timeline, job: Job) -> Peer | None:
    if job.pace is None or not job.slices:
        return None
    stretches = [job.pace.usual, *job.pace.slow]
    steps, wall_ns = sum(each.steps for each in stretches), sum(each.wall_ns for each in stretches)
    known = timeline.facts.processes.get(job.pid)
    rank = known.rank if known and (known.world_size or 0) > 1 else None
    return Peer(node, timeline, job, steps, wall_ns, rank) if steps > 0 and wall_ns > 0 else None


def odd_one(peers: Sequence[Peer]) -> Slow | None:
    """The slower one; where all are as slow, the one the others wait for."""
    slowest = max(peers, key=lambda each: each.step_ns)
    excess = _apart([each.step_ns for each in peers if each is not slowest], slowest.step_ns)
    if excess >= SLOWER * slowest.step_ns:
        return Slow(slowest, tuple(each for each in peers if each is not slowest), excess, False)
    steps = [each.step_ns for each in peers]
    in_step = max(steps) - min(steps) <= SAME_PACE * min(steps) and all(
        each.rank is not None for each in peers
    )
    awaited = min(peers, key=lambda each: each.waits_ns)
    less = _apart([-each.waits_ns for each in peers if each is not awaited], -awaited.waits_ns)
    if in_step and less >= SLOWER * awaited.step_ns:
        return Slow(awaited, tuple(each for each in peers if each is not awaited), less, True)
    return None


def _apart(others: Sequence[float], odd: float) -> float:
    """By how much it lies above all others; 0 where they differ as much among themselves."""
    apart = odd - max(others)
    return apart if apart > SPREAD * (max(others) - min(others)) else 0.0


def finding_of(slow: Slow, local: Sequence[Finding], by_name: dict[str, Detector]) -> Finding | None:
    """About the odd one; where its own node tells the reason, that finding, compared with the peers."""
    doer = slow.peer.doer()
    wall_ns = doer.span[1] - doer.span[0]
    excess_ns = int(slow.excess_ns * doer.steps)
    share = min(1.0, excess_ns / wall_ns)
    severity = severity_of(share)
    if severity is None or excess_ns < LEAST_NS:
        return None
    why = reasons(doer, [each.doer() for each in slow.others], excess_ns, slow.usual_ns, by_name)
    if slow.waited_for and not why:
        return None
    kinds = {each.kind for each in why}
    same = next((each for each in local if each.victim.pid == slow.peer.job.pid and each.kind in kinds), None)
    if same is not None:
        return msgspec.structs.replace(same, title=f"{same.title}; {compared(slow)}")
    return _made(slow, doer, why, excess_ns, round(share, 4), by_name)


def compared(slow: Slow) -> str:
    peers = f"its {len(slow.others)} peers on other nodes"
    if slow.waited_for:
        return f"{peers} wait {format_ns(slow.excess_ns)} longer in every step, for {slow.peer.node}"
    usual = median(each.step_ns for each in slow.others)
    return (
        f"a step takes {format_ns(slow.peer.step_ns)} on {slow.peer.node}, {format_ns(usual)} on {peers[4:]}"
    )


def _made(
    slow: Slow, doer: Doer, why: Sequence[Reason], excess_ns: int, share: float, by_name: dict[str, Detector]
) -> Finding | None:
    severity = severity_of(share)
    if severity is None:
        return None
    job, facts = doer.job, doer.timeline.facts
    kind = why[0].kind if why else by_name["slowdown"].name
    told = why[0].finding if why else None
    words = f"; there {in_words(why[0])}: {format_ns(why[0].ns / max(doer.steps, 1))} of it" if why else ""
    causes = _causes(slow, why, excess_ns)
    explained = round(sum(each.share for each in causes[:-1]), 4)
    look = f"ingero explain --per-process --pid {job.pid} --node {slow.peer.node}"
    return Finding(
        id=finding_id(slow.peer.node, kind, job.pid, facts.origin_ns),
        kind=kind,
        severity=severity,
        title=f"{job.comm} differs from its peers: {compared(slow)}{words}",
        first_ns=doer.span[0],
        last_ns=doer.span[1],
        confidence=round(CONFIDENCE * (0.6 + 0.4 * explained), 2),
        victim=Victim(job.pid, job.tid, job.comm),
        effect=Effect("step", slow.usual_ns, int(slow.peer.step_ns), excess_ns, share),
        causes=causes,
        explained_share=explained,
        source=told.source if told else None,
        stack=told.stack if told else [],
        gain=Gain(excess_ns, share),
        fix=[
            *(fix for each in why for fix in each.finding.fix),
            Fix(f"See what it does on {slow.peer.node}.", look),
        ],
        time=told.time if told else {},
        who=told.who if told else [],
        episodes=[doer.span],
    )


def _causes(slow: Slow, why: Sequence[Reason], excess_ns: int) -> list[Cause]:
    proof = Proof(
        f"{compared(slow)}: "
        + ", ".join(f"{each.node} {format_ns(each.step_ns)}" for each in slow.others[:8])
    )
    found = []
    for at, reason in enumerate(why):
        first = reason.finding.causes[0]
        proofs = [proof, *first.evidence] if at == 0 else first.evidence
        found.append(
            Cause(first.bucket, reason.ns, round(reason.ns / excess_ns, 4), first.who, proofs, first.via)
        )
    left_ns = max(0, excess_ns - sum(each.ns for each in found))
    share = round(1 - sum(each.share for each in found), 4)
    return [*found, Cause("unexplained", left_ns, share, evidence=[] if found else [proof])]
