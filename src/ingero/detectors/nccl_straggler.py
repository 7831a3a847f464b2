"""NCCL straggler: one rank comes to the collectives late, and all others wait for it.

Shows as   ranks waiting for the GPU in the step's collective; one of them hardly ever.
Proof      arrival times of all ranks of a communicator, collective by collective: the
           same rank is last in most of them. Times of several nodes are put on one clock, and
           its error is told.
Not this   ranks that take turns at being last (collective-imbalance); a rank that never
           comes (nccl-hang); a late host whose GPU is busy as long as the others'.
Blind to   ranks on other nodes, unless their recordings are merged (docs/fleet.md); slow links; a rank
           whose own work is equally bad (that is told first, as data-starvation); a rank whose GPU is late
           although its program is not (longer sequences, a slower GPU).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ingero.correlate.loss import LossPart, Lost
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.detector import Case, Detector, Evidence, LineChoice
from ingero.model.facts import Arrival
from ingero.model.finding import Fix, Proof
from ingero.units import format_ns, format_rounded

LAST_SHARE = 0.6  # of the rounds
LEAST_ROUNDS = 5  # somebody is last in every round; in fewer, by chance the same


def straggler(rounds: list[CollectiveRound]) -> Arrival | None:
    """The rank that is last by far most of the waiting."""
    if len(rounds) < LEAST_ROUNDS:
        return None
    caused: Counter[int] = Counter()
    for each in rounds:
        caused[each.last.rank] += sum(ns for _, ns in each.waits())
    rank, ns = caused.most_common(1)[0]
    if ns < LAST_SHARE * sum(caused.values()):
        return None
    return next(each.last for each in rounds if each.last.rank == rank)


def waited(timeline: Timeline, rounds: list[CollectiveRound], pid: int) -> dict[int, int]:
    """By slice: how long a process waited for the last rank."""
    found: dict[int, int] = defaultdict(int)
    facts = timeline.facts
    for each in rounds:
        for arrival, ns in each.waits():
            if arrival.pid == pid:
                found[int((arrival.at_ns - facts.origin_ns) // facts.slice_ns)] += ns
    return found


def _gpu_waits(timeline: Timeline, pid: int) -> dict[int, int]:
    """By slice: how long a rank waited for its GPU."""
    return {
        each.number: each.ns["gpu_wait"] for job in timeline.jobs if job.pid == pid for each in job.slices
    }


def _victim(timeline: Timeline, rounds: list[CollectiveRound], late: Arrival) -> Job | None:
    """Of the ranks that wait, the one that waits longest: the others' story is the same."""
    sums = {
        job.pid: sum(waited(timeline, rounds, job.pid).values())
        for job in timeline.jobs
        if job.pid != late.pid
    }
    best = max(sums, key=lambda pid: sums[pid], default=None)
    return next((job for job in timeline.jobs if job.pid == best and sums[job.pid] > 0), None)


def find(timeline: Timeline) -> Iterator[Evidence]:
    for rounds in rounds_of(timeline).values():
        late = straggler(rounds)
        victim = _victim(timeline, rounds, late) if late else None
        if late is None or victim is None:
            continue
        by_slice = waited(timeline, rounds, victim.pid)
        last = sum(each.last.rank == late.rank for each in rounds)
        note = f"rank {late.rank} was last in {last} of {len(rounds)} collectives"
        late_waits = _gpu_waits(timeline, late.pid)
        for each in victim.slices:
            # Hosts enqueue early or late; only who waits longer for the GPU waits for the other.
            longer = max(0, each.ns["gpu_wait"] - late_waits.get(each.number, 0))
            ns = min(by_slice.get(each.number, 0), longer)
            if ns:
                who = (LossPart(late.pid, timeline.facts.comm(late.pid), ns),)
                lost = Lost("gpu_wait", ns, victim.pid, victim.tid, victim.comm, who=who, whose="others")
                yield Evidence(victim, each, ns, (lost,), note=note)


def _doing(case: Case) -> str:
    """Where the straggler's own time went."""
    pid = case.who[0].pid
    job = next((each for each in case.timeline.jobs if each.pid == pid), None)
    if job is None:
        return "that rank is not traced"
    sums: Counter[str] = Counter()
    for each in job.slices:
        sums.update({name: ns for name, ns in each.ns.items() if name != "gpu_wait"})
    bucket, ns = sums.most_common(1)[0]
    return f"its own time went to {bucket} most ({format_rounded(ns / max(job.wall_ns, 1))})"


def headline(case: Case) -> str:
    return f"All ranks wait for one: {case.evidence[0].note} ({case.first_who()})"


def prove(case: Case) -> list[Proof]:
    return [
        Proof(
            f"{case.evidence[0].note}; the others waited {format_ns(case.ns)} for it",
            "SELECT rank, pid, SUM(wait_ns) AS waited_ns, COUNT(*) FROM nccl_events WHERE wait_ns IS NOT NULL"
            " GROUP BY rank, pid ORDER BY waited_ns",
        ),
        Proof(f"{case.first_who()}: {_doing(case)}"),
    ]


def advise(case: Case) -> list[Fix]:
    pid = case.who[0].pid
    return [
        Fix("See what that rank does differently.", f"ingero explain --per-process --pid {pid}"),
        Fix("Give every rank the same amount of data, and its own cores and disk."),
    ]


@dataclass(frozen=True, slots=True)
class CollectiveRound:
    """One collective all ranks of which were seen."""

    comm_hash: int
    seq: int
    arrivals: tuple[Arrival, ...]  # in order of their coming

    @property
    def last(self) -> Arrival:
        return self.arrivals[-1]

    def waits(self) -> list[tuple[Arrival, int]]:
        """How long each of the others waited."""
        return [(each, self.last.at_ns - each.at_ns) for each in self.arrivals[:-1]]


def rounds_of(timeline: Timeline) -> dict[int, list[CollectiveRound]]:
    """Complete rounds by communicator."""
    grouped: dict[tuple[int, int, str], list[Arrival]] = defaultdict(list)
    for each in timeline.arrivals:
        if each.nranks > 1:
            grouped[each.comm_hash, each.seq, each.op].append(each)
    found: dict[int, list[CollectiveRound]] = defaultdict(list)
    for (comm, seq, _), members in grouped.items():
        ranks = {each.rank for each in members}
        if len(members) == members[0].nranks == len(ranks):
            found[comm].append(CollectiveRound(comm, seq, tuple(sorted(members, key=lambda a: a.at_ns))))
    return found


DETECTOR = Detector(
    name="nccl-straggler",
    needs=frozenset({"calls", "nccl"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    lines=(
        LineChoice("count", "waits at the collective called", kinds=("collective",)),
        LineChoice("sample", "the late rank computes", of="culprit"),
    ),
)
