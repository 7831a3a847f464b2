"""What only several nodes together tell: who is waited for, and who differs from its peers.

Each node was diagnosed by itself before. One finding is told about the node that is late; what
the nodes that wait for it say of their waiting is no finding of its own any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ingero.correlate.meetings import Incomplete, meetings_of
from ingero.correlate.timeline import Timeline
from ingero.detectors import BY_NAME
from ingero.detectors.hang_across import hangs
from ingero.detectors.late_ranks import LateRanks
from ingero.detectors.slow_node import Peer, finding_of, groups_of, odd_one
from ingero.model.clocks import ClockOffset, Clocks
from ingero.model.facts import SLICE_NS
from ingero.model.finding import STATES, Finding, Unexplained
from ingero.model.report import NotWatched

MOSTLY = 0.5  # of a finding's time: then it is about the time in which all wait for one
ALIKE = 1.1  # how closely two sums of the same time agree


@dataclass(frozen=True, slots=True)
class RankPart:
    """A rank's part in what is told: it waits, or it is late for these reasons."""

    first_ns: int  # by its node's clock
    last_ns: int
    late: bool = False
    kinds: frozenset[str] = frozenset()
    buckets: frozenset[str] = frozenset()
    cost_ns: int = 0  # what the late one costs, from the first instant to the last

    def has(self, each: Finding | Unexplained) -> bool:
        """Whether what its node says by itself is told already.

        What a rank loses while it waits for another costs nothing: it would only have waited longer.
        """
        first_ns, last_ns = self.first_ns - SLICE_NS, self.last_ns + SLICE_NS  # nodes tell by whole slices
        within = min(each.last_ns, last_ns) - max(each.first_ns, first_ns)
        if within < MOSTLY * (each.last_ns - each.first_ns):
            return self._explains(each, within)
        if isinstance(each, Unexplained) or not self.late:
            return isinstance(each, Unexplained) or each.kind not in STATES
        main = each.causes[0].bucket if each.causes else ""
        return each.kind in self.kinds or (each.kind not in STATES and main in self.buckets)

    def _explains(self, each: Finding | Unexplained, within_ns: int) -> bool:
        """Whether steps of one that waits grew by no more than the late one made them longer meanwhile."""
        if self.late or within_ns <= 0 or isinstance(each, Unexplained) or each.kind in STATES:
            return False
        if each.effect.op != "step" or not each.effect.excess_ns:
            return False
        meanwhile = min(1.0, within_ns / max(self.last_ns - self.first_ns, 1))
        return each.effect.excess_ns <= self.cost_ns * meanwhile * ALIKE


@dataclass(slots=True)
class Across:
    """What to say besides what each node says, and what not to say any more."""

    findings: list[Finding] = field(default_factory=list)
    told: dict[tuple[str, int], RankPart] = field(default_factory=dict)  # by node and process
    not_watched: list[NotWatched] = field(default_factory=list)
    clocks: list[ClockOffset] = field(default_factory=list)
    instead: set[str] = field(default_factory=set)  # ids of findings of single nodes that one here stands for

    def covers(self, node: str, each: Finding | Unexplained) -> bool:
        """Whether something one node says by itself is part of what is told here."""
        if isinstance(each, Finding) and (
            each.id in self.instead or any(each.id == other.id for other in self.findings)
        ):
            return True
        part = self.told.get((node, each.victim.pid))
        return part is not None and part.has(each)


def judge_across(
    timelines: Mapping[str, Timeline], known: Clocks, local: Mapping[str, Sequence[Finding]] | None = None
) -> Across:
    """`known`: offsets of the nodes' clocks that were measured or given; `local`: what each node says."""
    found = Across()
    meetings, incomplete = meetings_of(timelines)
    for meeting in meetings:
        ranks = LateRanks(meeting, timelines, known)
        found.clocks += [each for node in meeting.nodes for each in ranks.clocks.by_node.get(node, [])]
        finding = ranks.finding(BY_NAME)
        if finding is not None:
            _tell(found, ranks, finding)
        doubt = ranks.doubt()
        found.not_watched += [doubt] if doubt else []
    for hang in hangs(timelines, local or {}):
        found.findings.append(hang.finding)
        found.instead |= hang.instead
    found.not_watched += _unseen(incomplete)
    met = {(member.node, member.pid) for meeting in meetings for member in meeting.members}
    for peers in groups_of(timelines, met):
        _compare(found, peers, local or {})
    return found


def _compare(found: Across, peers: Sequence[Peer], local: Mapping[str, Sequence[Finding]]) -> None:
    """Jobs of one command that do not meet in collectives."""
    slow = odd_one(peers)
    finding = finding_of(slow, local.get(slow.peer.node, ()), BY_NAME) if slow else None
    if slow is None or finding is None:
        return
    found.findings.append(finding)
    buckets = frozenset(cause.bucket for cause in finding.causes[:-1])
    first_ns, last_ns = slow.peer.doer().span
    kinds = frozenset({finding.kind, "slowdown"})
    found.told[slow.peer.node, slow.peer.job.pid] = RankPart(first_ns, last_ns, True, kinds, buckets)
    for each in slow.others if slow.waited_for else ():
        found.told[each.node, each.job.pid] = RankPart(*each.doer().span)


def _tell(found: Across, ranks: LateRanks, finding: Finding) -> None:
    """One finding about one rank, however many communicators it is late to."""
    before = next((each for each in found.findings if each.id == finding.id), None)
    if before is not None and (before.effect.excess_ns or 0) >= (finding.effect.excess_ns or 0):
        return
    found.findings = [each for each in found.findings if each is not before] + [finding]
    late = ranks.late
    assert late is not None
    buckets = frozenset(cause.bucket for cause in finding.causes[:-1])
    for member in ranks.meeting.members:
        first_ns, last_ns = ranks.span(member.node)
        part = RankPart(first_ns, last_ns, cost_ns=late.cost_ns)
        if member in late.members:
            part = RankPart(first_ns, last_ns, True, frozenset({*ranks.reason_kinds, finding.kind}), buckets)
        found.told[member.node, member.pid] = part


def _unseen(incomplete: Sequence[Incomplete]) -> list[NotWatched]:
    """Ranks whose node did not record, or is not in this database."""
    return [
        NotWatched(
            f"who is late to the collectives of a job on {', '.join(each.nodes)}",
            f"{each.nranks - each.seen} of its {each.nranks} ranks were not recorded",
        )
        for each in incomplete
        if len(each.nodes) > 1
    ]
