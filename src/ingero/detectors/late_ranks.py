"""The rank on another node that all wait for: one finding about it, none about those that wait.

It is told of the node that is late, with that node's own causes, line and fixes: there is
something to do. nccl_straggler.py tells the same of ranks on one node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ingero.correlate.lateness import clocks_of, late_node
from ingero.correlate.meetings import Meeting, RankMember
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors import nccl_straggler
from ingero.detectors.against_peers import Doer, Reason, in_words, reasons
from ingero.detectors.detector import Detector
from ingero.model.clocks import Clocks
from ingero.model.finding import (
    Cause,
    Effect,
    Finding,
    Fix,
    Gain,
    Proof,
    Severity,
    Victim,
    finding_id,
    severity_of,
)
from ingero.model.report import NotWatched
from ingero.units import SECOND, format_clock, format_ns

KIND = nccl_straggler.DETECTOR.name
LEAST_NS = SECOND // 2  # in all: a pause nobody at a terminal would notice twice
CONFIDENCE = 0.9


class LateRanks:
    """One communicator, looked at across the nodes its ranks are on."""

    def __init__(self, meeting: Meeting, timelines: Mapping[str, Timeline], known: Clocks) -> None:
        self.meeting = meeting
        self._timelines = timelines
        self.clocks = clocks_of(meeting, known)
        self.late = late_node(meeting, self.clocks)
        self.reason_kinds: list[str] = []  # what makes it late, by its own node

    def job_of(self, member: RankMember) -> Job | None:
        jobs = self._timelines[member.node].jobs
        return next((job for job in jobs if job.pid == member.pid), None)

    @property
    def wall_ns(self) -> int:
        return self.late.last_ns - self.late.first_ns if self.late else 0

    @property
    def severity(self) -> Severity | None:
        """None: not worth saying."""
        if self.late is None or self.late.cost_ns < LEAST_NS or self.wall_ns <= 0:
            return None
        return severity_of(min(1.0, self.late.cost_ns / self.wall_ns))

    def doubt(self) -> NotWatched | None:
        """What cannot be told, and why."""
        nodes = ", ".join(self.meeting.nodes)
        late = self.late
        if late is None or self.severity is None or late.certain:
            return None
        what = f"which of {nodes} comes late to their collectives"
        if late.error_ns is None:
            why = "how far their clocks are apart is not known: no common waits for the GPU, nothing measured"
            return NotWatched(what, f"{why}; `ingero merge --clock-offset` tells it")
        return NotWatched(
            what,
            f"{late.node} seems to be {format_ns(late.late_ns)} late,"
            f" and their clocks are known within {format_ns(late.error_ns)} only",
        )

    def finding(self, by_name: dict[str, Detector]) -> Finding | None:
        late, severity = self.late, self.severity
        if late is None or severity is None or not late.certain:
            return None
        job = self.job_of(late.members[0])
        timeline = self._timelines[late.node]
        why = self._reasons(job, by_name) if job else []
        self.reason_kinds = [each.kind for each in why]
        pid = late.members[0].pid
        share = round(min(1.0, late.cost_ns / self.wall_ns), 4)
        causes = self._causes(why)
        explained = round(sum(each.share for each in causes[:-1]), 4)
        told = why[0].finding if why else None
        span = self.span(late.node)
        return Finding(
            id=finding_id(late.node, KIND, pid, timeline.facts.origin_ns),
            kind=KIND,
            severity=severity,
            title=self.title(why),
            first_ns=span[0],
            last_ns=span[1],
            confidence=round(self._confidence(explained), 2),
            victim=Victim(pid, job.tid if job else None, job.comm if job else timeline.facts.comm(pid)),
            effect=Effect("step", self._usual_ns(), self._now_ns(), late.cost_ns, share),
            causes=causes,
            explained_share=explained,
            source=told.source if told else None,
            stack=told.stack if told else [],
            gain=Gain(late.cost_ns, share),
            fix=self._fixes(why),
            time=told.time if told else {},
            who=told.who if told else [],
            episodes=[span],
        )

    def span(self, node: str) -> tuple[int, int]:
        """From when to when, by the node's own clock."""
        assert self.late is not None
        first, last = (self.clocks.own_ns(node, at) for at in (self.late.first_ns, self.late.last_ns))
        return first, last

    def _reasons(self, job: Job, by_name: dict[str, Detector]) -> list[Reason]:
        late = self.late
        assert late is not None
        slow = Doer(self._timelines[late.node], job, self.span(late.node), late.rounds)
        peers = [
            Doer(self._timelines[member.node], peer, self.span(member.node), late.rounds)
            for member in self.meeting.members
            if member not in late.members and (peer := self.job_of(member)) is not None
        ]
        return reasons(slow, peers, late.cost_ns, self._usual_ns(), by_name)

    def _now_ns(self) -> int:
        assert self.late is not None
        return int(self.wall_ns / max(self.late.rounds - 1, 1))

    def _usual_ns(self) -> int:
        """A step before it was late; where it always was, as long as it would be if it were not."""
        late = self.late
        assert late is not None
        if late.amid:
            return int(np.median(np.diff(self.meeting.at[: late.first, 0])))
        return max(0, self._now_ns() - late.cost_ns // max(late.rounds, 1))

    def _confidence(self, explained: float) -> float:
        late = self.late
        assert late is not None
        assert late.error_ns is not None
        sure = 1 - late.error_ns / max(late.late_ns, 1)
        return CONFIDENCE * (0.7 + 0.3 * explained) * (0.7 + 0.3 * sure)

    def title(self, why: Sequence[Reason]) -> str:
        late = self.late
        assert late is not None
        numbers = sorted(member.rank for member in late.members)
        ranks = f"Rank {numbers[0]}" if len(numbers) == 1 else f"Ranks {_listed(numbers)}"
        often = "in every step" if late.every else f"in {late.late_rounds} of {late.rounds} steps"
        since = f" since {format_clock(self.span(late.node)[0])}" if late.amid else ""
        arrives = "arrives" if len(numbers) == 1 else "arrive"
        text = f"{ranks} on {late.node} {arrives} {format_ns(late.late_ns)} late {often}{since}"
        if not why:
            return text
        part = min(late.late_ns, int(late.late_ns * why[0].ns / max(late.cost_ns, 1)))
        return f"{text}; there {in_words(why[0])}: {format_ns(part)} of it"

    def _causes(self, why: Sequence[Reason]) -> list[Cause]:
        late = self.late
        assert late is not None
        found = []
        for at, reason in enumerate(why):
            proofs = [*(self._proofs() if at == 0 else []), *reason.finding.causes[0].evidence]
            first = reason.finding.causes[0]
            share = round(reason.ns / late.cost_ns, 4)
            found.append(Cause(first.bucket, reason.ns, share, first.who, proofs, first.via))
        left_ns = max(0, late.cost_ns - sum(each.ns for each in found))
        share = round(1 - sum(each.share for each in found), 4)
        proofs = [] if found else self._proofs()
        return [*found, Cause("unexplained", left_ns, share, evidence=proofs)]

    def _proofs(self) -> list[Proof]:
        late = self.late
        assert late is not None
        others = len(self.meeting.members) - len(late.members)
        first = late.members[0]
        return [
            Proof(
                f"rank {first.rank} (pid {first.pid}) or another of {late.node} came last in"
                f" {late.late_rounds} of {late.rounds} steps, {format_ns(late.late_ns)} after the middle of"
                f" the other nodes; {others} ranks on {len(self.meeting.nodes)} nodes waited"
            ),
            Proof(f"clocks are known within {format_ns(late.error_ns)}: {self._clock_words()}"),
        ]

    def _clock_words(self) -> str:
        reference = self.meeting.members[0].node
        said = []
        for node in self.meeting.nodes:
            known = self.clocks.by_node.get(node, [])
            if node != reference and known:
                offset_ns = known[len(known) // 2].offset_ns
                side = "ahead" if offset_ns >= 0 else "behind"
                said.append(
                    f"{node} {format_ns(abs(offset_ns))} {side} ({_HOW.get(known[0].how, known[0].how)})"
                )
        return f"against {reference}, {', '.join(said[:8])}" if said else reference

    def _fixes(self, why: Sequence[Reason]) -> list[Fix]:
        late = self.late
        assert late is not None
        fixes = [fix for reason in why for fix in reason.finding.fix]
        look = f"ingero explain --per-process --pid {late.members[0].pid} --node {late.node}"
        return [*fixes, Fix(f"See what that rank does on {late.node}.", look)]


_HOW = {"collectives": "by when their collectives end", "given": "as given", "measured": "as measured"}


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
