"""From evidence to findings: when, how bad, how sure, and nothing said twice.

A finding needs half a second of lost time, more in a long recording, that goes on or
comes again and makes up 3 % of the time it covers: nobody is paged for less, a single
pause is no trouble, and a busy machine's noise stays below it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import median

from ingero.correlate.account import GrownLine
from ingero.correlate.loss import LossPart, SliceLedger
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.detector import Case, Detector, Evidence, State
from ingero.detectors.finding_lines import subject_of_case, subject_of_state, with_line
from ingero.detectors.proofs import culprits_of, ourselves
from ingero.detectors.verdict import NamedRows
from ingero.model.finding import (
    Cause,
    Effect,
    Finding,
    Gain,
    Unexplained,
    Victim,
    Who,
    finding_id,
    severity_of,
)
from ingero.units import SECOND, format_ns

EDGE = 0.7  # of the usual loss: slices at the edge with less were hit only in part, or not yet
LEAST_NS = SECOND // 2  # a pause nobody at a terminal would notice twice
LEAST_OF_ALL = 0.003  # of the time the job was seen: half a second in three minutes
LONG_NS = 10 * SECOND  # and that much is worth saying however long the recording is
AGAIN_AND_AGAIN = 3  # slices with loss, however far apart
NEAR_SLICES = 5  # episodes closer than this are one
USUAL_SLICES = 2  # undisturbed slices that tell what is usual
USUAL_STEPS = 50  # or one with so many iterations
MOSTLY = 0.5  # of what was slower than usual: a finding that proves so much of it stands for all
UNEXPLAINED_SHARE = 0.10  # of the job's time: iterations differ by a few percent for no reason
MAX_WHO = 5  # names that a reader still takes in


@dataclass(slots=True)
class Episode:
    """Slices in a row in which a job loses time to the same thing."""

    first: int
    last: int
    evidence: list[Evidence] = field(default_factory=list)

    @property
    def ns(self) -> int:
        return sum(each.ns for each in self.evidence)

    def without_edges(self, seen: tuple[int, int]) -> Episode:
        """`seen`: the job's first and last slice. What began or ended in between did so amid a slice."""
        shares = [each.ns / max(each.slice.wall_ns, 1) for each in self.evidence]
        first, last, least = 0, len(shares) - 1, EDGE * median(shares)
        if self.first > seen[0] and last - first > 1:
            first += 1
        if self.last < seen[1] and last - first > 1:
            last -= 1
        while last - first > 1 and shares[first] < least:
            first += 1
        while last - first > 1 and shares[last] < least:
            last -= 1
        inner = self.evidence[first : last + 1]
        return Episode(inner[0].slice.number, inner[-1].slice.number, inner)


@dataclass(slots=True)
class Claim:
    """One detector about one job."""

    detector: Detector
    job: Job
    episodes: list[Episode]
    named: NamedRows | None = None  # where it comes from the job's account
    line: GrownLine | None = None  # of the time it is about, where the account tells it

    @property
    def evidence(self) -> list[Evidence]:
        return [each for episode in self.episodes for each in episode.evidence]

    @property
    def ns(self) -> int:
        return sum(episode.ns for episode in self.episodes)

    def numbers(self) -> list[int]:
        """Slices of the job that it covers, quiet ones within an episode included."""
        return [
            each.number
            for each in self.job.slices
            if any(episode.first <= each.number <= episode.last for episode in self.episodes)
        ]

    def wall_ns(self) -> int:
        covered = set(self.numbers())
        return sum(each.wall_ns for each in self.job.slices if each.number in covered)

    def without_edges(self) -> Claim:
        """Where it was fully on: a fault that begins or ends amid a slice fills only a part of it."""
        seen = self.job.slices[0].number, self.job.slices[-1].number
        kept = [episode.without_edges(seen) for episode in self.episodes]
        return Claim(self.detector, self.job, kept, self.named, self.line)


def claim_of(detector: Detector, named: NamedRows, timeline: Timeline) -> Claim | None:
    """What the account of a job says, as a claim."""
    evidence = [
        Evidence(named.told.job, each, sum(row.ns for row in rows), rows)
        for each, rows in named.by_slice(timeline)
    ]
    if not evidence:
        return None
    episode = Episode(evidence[0].slice.number, evidence[-1].slice.number, evidence)
    return Claim(detector, named.told.job, [episode], named)


def _walls(job: Job) -> dict[int, int]:
    return {each.number: each.wall_ns for each in job.slices}


def claims_of(detector: Detector, evidence: Iterable[Evidence]) -> list[Claim]:
    """Evidence that is worth saying, by job."""
    by_job: dict[int, list[Evidence]] = defaultdict(list)
    for each in evidence:
        if not each.slice.ending and not each.slice.starting:
            by_job[each.job.pid].append(_bounded(each))
    claims = []
    for members in by_job.values():
        job = members[0].job
        episodes = _episodes(job, members, detector.least_share)
        if episodes:
            claims.append(Claim(detector, job, episodes))
    return claims


def _bounded(each: Evidence) -> Evidence:
    """Calls of several threads, or spikes, may sum to more than the time there was."""
    most = each.slice.wall_ns
    if each.ns <= most:
        return each
    gain_ns = None if each.gain_ns is None else min(each.gain_ns, most)
    return replace(each, ns=most, gain_ns=gain_ns)


def _episodes(job: Job, evidence: list[Evidence], least_share: float) -> list[Episode]:
    """Stretches of loss that are worth saying.

    Loss that goes on is, and loss that comes again and again; a single pause is not.
    """
    strong = [each for each in evidence if each.ns >= least_share * each.slice.wall_ns]
    runs = _runs(sorted(strong, key=lambda each: each.slice.number))
    walls = _walls(job)
    lasting = [run for run in runs if _goes_on(job, run) and _is_much(job, walls, run, least_share)]
    if not lasting and len(strong) >= AGAIN_AND_AGAIN:
        whole = Episode(runs[0].first, runs[-1].last, [each for run in runs for each in run.evidence])
        return [whole] if _is_much(job, walls, whole, least_share) else []
    merged: list[Episode] = []
    for run in lasting:
        if merged and run.first - merged[-1].last <= NEAR_SLICES:
            merged[-1].last = run.last
            merged[-1].evidence.extend(run.evidence)
        else:
            merged.append(run)
    return merged


def _runs(strong: list[Evidence]) -> list[Episode]:
    runs: list[Episode] = []
    for each in strong:
        number = each.slice.number
        if runs and number - runs[-1].last <= 2:
            runs[-1].last = number
        else:
            runs.append(Episode(number, number))
        runs[-1].evidence.append(each)
    return runs


def _goes_on(job: Job, run: Episode) -> bool:
    """More than one slice; of a job that was seen for no longer, that one."""
    return len(run.evidence) > 1 or len(job.slices) <= 2 or job.covered < 1


def _is_much(job: Job, walls: dict[int, int], run: Episode, least_share: float) -> bool:
    floor_ns = max(LEAST_NS, min(LONG_NS, sum(walls.values()) * LEAST_OF_ALL)) * job.covered
    covered = sum(walls.get(number, 0) for number in range(run.first, run.last + 1))
    return run.ns >= max(floor_ns, least_share * covered)


def usual_step_ns(job: Job, disturbed: set[int]) -> float | None:
    """Length of an iteration in the slices nothing disturbed."""
    full = max((each.wall_ns for each in job.slices), default=0) // 2  # the first and the last are cut
    calm = [
        (step, job.steps(each.number))
        for each in job.slices
        if not each.cold and not each.ending and each.number not in disturbed and each.wall_ns >= full
        if (step := job.step_ns([each.number])) is not None
    ]
    enough = len(calm) >= USUAL_SLICES or any(steps >= USUAL_STEPS for _, steps in calm)
    return median(step for step, _ in calm) if enough else None


class Judge:
    """Makes findings of all detectors' claims about one timeline."""

    def __init__(self, timeline: Timeline, claims: list[Claim]) -> None:
        self._timeline = timeline
        self._claims = claims
        self._usual: dict[int, float | None] = {}
        self._disturbed: dict[int, set[int]] = defaultdict(set)
        for claim in claims:
            self._disturbed[claim.job.pid].update(claim.numbers())

    def findings(self) -> list[Finding]:
        return [found for claim in self._claims if (found := self._finding(claim)) is not None]

    def usual_ns(self, job: Job) -> float | None:
        """Length of an iteration while nothing disturbed it; None: never seen."""
        if job.pid not in self._usual:
            self._usual[job.pid] = usual_step_ns(job, self._disturbed[job.pid])
        return self._usual[job.pid]

    def _excess(self, job: Job, numbers: list[int]) -> int | None:
        """By how much these slices were longer than their iterations usually take."""
        usual = self.usual_ns(job)
        walls = _walls(job)
        steps = sum(job.steps(number) for number in numbers)
        if usual is None or not steps:
            return None
        longer = int(sum(walls[number] for number in numbers) - usual * steps)
        # Where they are not longer, what nothing disturbed was another, slower phase: no measure of this one.
        return longer if longer > 0 else None

    def _usual_and_now(self, claim: Claim) -> tuple[float | None, float | None]:
        """Length of an iteration before and meanwhile; only a longer one now has a usual one."""
        usual, now = self.usual_ns(claim.job), claim.job.step_ns(claim.numbers())
        return (usual if usual and now and int(now) > int(usual) else None), now

    def _of_account(self, claim: Claim, named: NamedRows) -> Finding | None:
        """All of it from the same rows."""
        told = named.told
        claimed = sum(other.named.ns for other in self._claims if other.named and other.named.told is told)
        left = max(0, told.excess_ns - claimed)
        # Most of the extra time takes the rest along: waking up, cold caches, others that wait in turn.
        all_of_it = told.changed and claimed >= MOSTLY * told.excess_ns
        unexplained = int(left * named.ns / claimed) if all_of_it or left > 0.1 * told.excess_ns else 0
        excess = named.ns + unexplained
        lost_ns = excess if all_of_it else named.ns
        share = min(1.0, lost_ns / max(told.wall_ns, 1))
        severity = severity_of(share)
        if severity is None:
            return None
        case = self._case(claim, told.wall_ns)
        facts = self._timeline.facts
        spans = [(max(first, facts.from_ns), min(last, facts.to_ns)) for first, last in told.spans]
        case.first_ns, case.last_ns = spans[0][0], spans[-1][1]
        headline = claim.detector.headline or (lambda _: claim.detector.title)
        finding = Finding(
            id=finding_id(facts.node, claim.detector.name, claim.job.pid, facts.origin_ns),
            kind=claim.detector.name,
            severity=severity,
            title=headline(case),
            first_ns=case.first_ns,
            last_ns=case.last_ns,
            confidence=round(self._confidence(claim, named.ns / excess), 2),
            victim=_victim(claim.job, self._timeline),
            effect=Effect("step", told.usual_ns, told.now_ns, excess, round(share, 4)),
            causes=self._causes(case, claim, excess, unexplained),
            explained_share=round(named.ns / excess, 4),
            gain=Gain(lost_ns, round(share, 4)),
            fix=claim.detector.advise(case),
            time=_time(claim),
            who=ourselves(case),
            episodes=spans,
        )
        return with_line(finding, claim.detector, subject_of_case(case), named.line)

    def _finding(self, claim: Claim) -> Finding | None:
        if claim.named is not None:
            return self._of_account(claim, claim.named)
        wall_ns, core = claim.wall_ns(), claim.without_edges()
        core_ns = max(core.wall_ns(), 1)
        share = min(1.0, core.ns / core_ns)
        severity = severity_of(share)
        if severity is None:
            return None
        case = self._case(claim, wall_ns)
        usual, now = self._usual_and_now(claim)
        unexplained = self._unexplained_ns(claim)
        excess = claim.ns + unexplained
        explained = claim.ns / excess
        headline = claim.detector.headline or (lambda _: claim.detector.title)
        facts = self._timeline.facts
        finding = Finding(
            id=finding_id(facts.node, claim.detector.name, claim.job.pid, facts.origin_ns),
            kind=claim.detector.name,
            severity=severity,
            title=headline(case),
            first_ns=case.first_ns,
            last_ns=case.last_ns,
            confidence=round(self._confidence(claim, explained), 2),
            victim=_victim(claim.job, self._timeline),
            effect=Effect(
                "step" if claim.job.loop else None,
                int(usual) if usual else None,
                int(now) if now else None,
                excess,
                round(share, 4),
            ),
            causes=self._causes(case, claim, excess, unexplained),
            explained_share=round(explained, 4),
            gain=Gain(self._gain(claim), round(min(share, self._gain(core) / core_ns), 4)),
            fix=claim.detector.advise(case),
            time=_time(claim),
            who=ourselves(case),
            episodes=[
                (max(facts.at_ns(e.first), facts.from_ns), min(facts.at_ns(e.last + 1), facts.to_ns))
                for e in claim.episodes
            ],
        )
        return with_line(finding, claim.detector, subject_of_case(case), claim.line)

    def _case(self, claim: Claim, wall_ns: int) -> Case:
        facts = self._timeline.facts
        first_ns = max(facts.at_ns(claim.episodes[0].first), facts.from_ns)
        last_ns = min(facts.at_ns(claim.episodes[-1].last + 1), facts.to_ns)
        case = Case(claim.job, self._timeline, claim.evidence, claim.ns, wall_ns, first_ns, last_ns)
        case.who = culprits_of(case)
        return case

    def _unexplained_ns(self, claim: Claim) -> int:
        """Of what was slower than usual, the part nobody claims, as far as it falls to this one."""
        numbers = claim.numbers()
        excess = self._excess(claim.job, numbers)
        if excess is None:
            return 0
        claimed = self._claimed(claim.job, set(numbers))
        left = excess - claimed
        # A tenth is the noise of the comparison itself.
        return int(left * claim.ns / claimed) if claimed and left > 0.1 * excess else 0

    def _claimed(self, job: Job, numbers: set[int]) -> int:
        """What all findings about a job together say was lost in these slices."""
        return sum(
            each.ns
            for other in self._claims
            if other.job.pid == job.pid
            for each in other.evidence
            if each.slice.number in numbers
        )

    def _gain(self, claim: Claim) -> int:
        """What was never slower than usual cannot be won back by as much as was lost."""
        promised = sum(
            each.ns if each.gain_ns is None else min(each.gain_ns, each.ns) for each in claim.evidence
        )
        numbers = claim.numbers()
        excess, lost = self._excess(claim.job, numbers), self._claimed(claim.job, set(numbers))
        return promised if excess is None or not lost else int(promised * min(1.0, excess / lost))

    def _confidence(self, claim: Claim, explained: float) -> float:
        lossy = sum(each.slice.lossy for each in claim.evidence) / len(claim.evidence)
        vague = sum(lost.ns for each in claim.evidence for lost in each.causes if lost.whose == "unknown")
        known = sum(lost.ns for each in claim.evidence for lost in each.causes)
        unsure = 0.3 * vague / known if known else 0.0
        return claim.detector.confidence * (0.6 + 0.4 * explained) * (1 - 0.4 * lossy) * (1 - unsure)

    def _causes(self, case: Case, claim: Claim, excess: int, unexplained: int) -> list[Cause]:
        sums: dict[str, int] = defaultdict(int)
        for each in claim.evidence:
            known = sum(lost.ns for lost in each.causes)
            for lost in each.causes:
                sums[lost.bucket] += int(lost.ns * each.ns / known) if known else 0
        proofs = claim.detector.prove(case)
        causes = []
        for at, (bucket, ns) in enumerate(sorted(sums.items(), key=lambda item: -item[1])):
            lost = next(each for each in case.causes if each.bucket == bucket)
            who = [self._who(part) for part in case.who[:MAX_WHO]] if at == 0 else []
            causes.append(
                Cause(bucket, ns, round(ns / excess, 4), who, proofs if at == 0 else [], list(lost.via))
            )
        causes.append(Cause("unexplained", unexplained, round(unexplained / excess, 4)))
        return causes

    def _who(self, part: LossPart) -> Who:
        return Who(part.pid, part.comm, part.ns, self._timeline.facts.container_of(part.pid))

    def unexplained(self) -> list[Unexplained]:
        """Jobs that were slower than usual for no reason we can prove."""
        return [found for job in self._timeline.jobs if (found := self._slow(job)) is not None]

    def _more_gpu_ns(self, job: Job, slow: list[SliceLedger]) -> int:
        """Longer waits for the GPU: more work per iteration, which is no riddle."""
        numbers = {each.number for each in slow}
        calm = [each for each in job.slices if not each.cold and each.number not in numbers]
        more = _gpu_per_step(job, slow) - _gpu_per_step(job, calm)
        return int(max(0.0, more) * sum(job.steps(each.number) for each in slow))

    def _slow(self, job: Job) -> Unexplained | None:
        usual = self.usual_ns(job)
        if usual is None or job.loop is None:
            return None
        walls = _walls(job)
        slow = [
            each
            for each in job.slices
            if not each.cold and not each.ending and each.number not in self._disturbed[job.pid]
            if job.steps(each.number) and each.wall_ns - usual * job.steps(each.number) > 0.25 * each.wall_ns
        ]
        excess = int(sum(walls[e.number] - usual * job.steps(e.number) for e in slow))
        excess -= self._more_gpu_ns(job, slow)
        wall = sum(each.wall_ns for each in slow)
        if excess < 2 * LEAST_NS or excess < UNEXPLAINED_SHARE * job.wall_ns:
            return None
        facts = self._timeline.facts
        return Unexplained(
            _victim(job, self._timeline),
            facts.at_ns(slow[0].number),
            facts.at_ns(slow[-1].number + 1),
            excess,
            round(excess / wall, 4),
            f"{job.comm} (pid {job.pid}) was slower than usual by {format_ns(excess)} in {format_ns(wall)},"
            " and nothing recorded proves why",
        )


def _victim(job: Job, timeline: Timeline) -> Victim:
    return Victim(job.pid, job.tid, job.comm, timeline.facts.container_of(job.pid))


def _time(claim: Claim) -> dict[str, int]:
    """Where the victim's time went while it lasted."""
    covered = set(claim.numbers())
    total: dict[str, int] = defaultdict(int)
    for each in claim.job.slices:
        if each.number in covered:
            for bucket, ns in each.ns.items():
                total[bucket] += ns
    return dict(total)


def _gpu_per_step(job: Job, slices: list[SliceLedger]) -> float:
    steps = sum(job.steps(each.number) for each in slices)
    return sum(each.ns["gpu_wait"] for each in slices) / steps if steps else 0.0


def _waiting(state: State, who: list[Who]) -> list[Cause]:
    """A wait that does not end is time, and somebody's."""
    if not state.waited_ns:
        return []
    return [
        Cause("gpu_wait", state.waited_ns, 1.0, who, list(state.proofs)),
        Cause("unexplained", 0, 0.0),
    ]


def state_finding(detector: Detector, state: State, timeline: Timeline) -> Finding:
    """A state has no excess: its event is the proof."""
    facts = timeline.facts
    who = [Who(part.pid, part.comm, part.ns, facts.container_of(part.pid)) for part in state.who]
    finding = Finding(
        id=finding_id(facts.node, detector.name, state.pid, facts.origin_ns),
        kind=detector.name,
        severity=state.severity,
        title=state.title,
        first_ns=state.first_ns,
        last_ns=state.last_ns,
        confidence=state.confidence,
        victim=Victim(state.pid, state.tid, state.comm, facts.container_of(state.pid)),
        effect=Effect(state.op, None, None, None, None),
        causes=_waiting(state, who),
        explained_share=1.0 if state.waited_ns else None,
        fix=list(state.fixes),
        evidence=[] if state.waited_ns else list(state.proofs),
        who=who,
    )
    return with_line(finding, detector, subject_of_state(state, timeline))
