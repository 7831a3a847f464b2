"""A collective that hangs, of ranks on several nodes: told once, about the rank that never joined it.

A node by itself sees that its ranks wait for somebody; who that is, is on another node. Whether a
wait is long enough for a hang was judged on each node (nccl_hang.py), and no two nodes' times are
compared here: a rank is missing when the others are further and it has not moved for as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ingero.correlate.loss import LossPart
from ingero.correlate.timeline import Timeline
from ingero.detectors import nccl_hang
from ingero.detectors.commands import FAIL_INSTEAD, ended, look
from ingero.detectors.detector import State
from ingero.detectors.judge import state_finding
from ingero.model.facts import Arrival, InFlight
from ingero.model.finding import Finding, Fix, Proof, Severity
from ingero.units import format_ns, format_share

KIND = nccl_hang.DETECTOR.name
NAMED = 4  # ranks, in a title


@dataclass(frozen=True, slots=True)
class Rank:
    """Where one rank of a communicator stands: the last collective it entered."""

    node: str
    last: Arrival
    wait: InFlight | None  # that began then and has not ended, or ended with nothing after it
    over: bool = False


@dataclass(frozen=True, slots=True)
class Hang:
    """One finding, and those of single nodes that it stands for."""

    finding: Finding
    instead: frozenset[str]


def hangs(timelines: Mapping[str, Timeline], local: Mapping[str, Sequence[Finding]]) -> Iterator[Hang]:
    told = {node: [each for each in found if each.kind == KIND] for node, found in local.items()}
    if not any(told.values()):
        return
    for arrivals in _by_communicator(timelines).values():
        members = {(node, each.pid) for node, each in arrivals}
        said = [
            (node, each)
            for node, found in told.items()
            for each in found
            if (node, each.victim.pid) in members or any((node, who.pid) in members for who in each.who)
        ]
        if said and len({node for node, _ in arrivals}) > 1:
            finding = _hang(timelines, _ranks(timelines, arrivals))
            if finding is not None:
                yield Hang(finding, frozenset(each.id for _, each in said))


def _by_communicator(timelines: Mapping[str, Timeline]) -> dict[int, list[tuple[str, Arrival]]]:
    found: dict[int, list[tuple[str, Arrival]]] = {}
    for node, timeline in timelines.items():
        for each in (*timeline.arrivals, *timeline.facts.standing):
            if each.nranks > 1:
                found.setdefault(each.comm_hash, []).append((node, each))
    return found


def _ranks(timelines: Mapping[str, Timeline], arrivals: list[tuple[str, Arrival]]) -> list[Rank]:
    last: dict[int, tuple[str, Arrival]] = {}
    for node, each in arrivals:
        if each.rank not in last or each.seq > last[each.rank][1].seq:
            last[each.rank] = node, each
    return [_rank(node, timelines[node], each) for _, (node, each) in sorted(last.items())]


def _rank(node: str, timeline: Timeline, last: Arrival) -> Rank:
    since = timeline, last.pid, last.at_ns, nccl_hang.LEAST_NS
    lasts = nccl_hang.waits_since(*since)
    return Rank(node, last, lasts or nccl_hang.gave_up(*since), over=lasts is None)


def _hang(timelines: Mapping[str, Timeline], ranks: list[Rank]) -> Finding | None:
    """None where somebody moves still: it is late, and may come."""
    furthest = max(each.last.seq for each in ranks)
    waiting = [each for each in ranks if each.last.seq == furthest and each.wait is not None]
    behind = [each for each in ranks if each.last.seq < furthest]
    if not waiting or (not behind and all(each.over for each in waiting)):
        return None
    waits_ns = min(each.wait.lasted_ns for each in waiting if each.wait is not None)
    if any(not _still(timelines[each.node], each.last, waits_ns // 2) for each in behind):
        return None
    absent = sorted(set(range(ranks[0].last.nranks)) - {each.last.rank for each in ranks})
    subject = (behind or waiting)[0]
    timeline = timelines[subject.node]
    return state_finding(
        nccl_hang.DETECTOR,
        _state(timeline, timelines, subject, waiting, behind, absent, furthest),
        timeline,
    )


def _still(timeline: Timeline, last: Arrival, for_ns: int) -> bool:
    """It ended, or entered nothing for so long by its own node's clock."""
    return ended(timeline.facts, last.pid) or timeline.facts.to_ns - last.at_ns >= for_ns


def _state(
    timeline: Timeline,
    timelines: Mapping[str, Timeline],
    subject: Rank,
    waiting: list[Rank],
    behind: list[Rank],
    absent: list[int],
    furthest: int,
) -> State:
    facts = timeline.facts
    longest = max(each.wait.lasted_ns for each in waiting if each.wait is not None)
    proofs = [_waits(each) for each in waiting[:3]]
    proofs += [_stands(timelines[each.node], each) for each in behind[:3]]
    return State(
        subject.last.pid,
        facts.comm(subject.last.pid),
        _title(furthest, waiting, behind, absent),
        subject.last.at_ns,
        facts.to_ns,
        tuple(proofs),
        Severity.CRITICAL,
        next((job.tid for job in timeline.jobs if job.pid == subject.last.pid), None),
        subject.last.op,
        tuple(
            LossPart(each.last.pid, facts.comm(each.last.pid), 0)
            for each in behind
            if each.node == subject.node
        ),
        (_where(timeline, subject, bool(behind)), FAIL_INSTEAD),
        waited_ns=longest,
    )


def _title(furthest: int, waiting: list[Rank], behind: list[Rank], absent: list[int]) -> str:
    on = len({each.node for each in waiting})
    who = f"{len(waiting)} rank{'s' if len(waiting) > 1 else ''} on {on} node{'s' if on > 1 else ''}"
    if behind:
        names = ", ".join(f"rank {each.last.rank} on {each.node}" for each in behind[:NAMED])
        more = f" and {len(behind) - NAMED} more" if len(behind) > NAMED else ""
        return f"Collective {furthest} hangs: {names}{more} never joined it, {who} wait in it"
    if absent:
        names = ", ".join(map(str, absent[:NAMED])) + (" ..." if len(absent) > NAMED else "")
        return f"Collective {furthest} hangs: {who} wait in it; not recorded: rank {names}"
    return (
        f"Collective {furthest} hangs: all {len(waiting)} ranks on {on} nodes are in it and it does not end"
    )


def _waits(rank: Rank) -> Proof:
    wait, last = rank.wait, rank.last
    assert wait is not None
    had = "had" if rank.over or wait.died else "has"
    return Proof(
        f"rank {last.rank} on {rank.node} (pid {last.pid}) entered {last.op} number {last.seq}"
        f" and {had} waited in {wait.op or wait.bucket} for {format_ns(wait.lasted_ns)}",
        "SELECT node, rank, pid, MAX(seq) FROM nccl_events GROUP BY 1, 2, 3",
    )


def _stands(timeline: Timeline, rank: Rank) -> Proof:
    """Where the missing one is, as far as its own node saw."""
    at = f"last entered number {rank.last.seq}" if rank.last.seq >= 0 else "has entered none"
    who = f"rank {rank.last.rank} on {rank.node} (pid {rank.last.pid}) {at}"
    if ended(timeline.facts, rank.last.pid):
        return Proof(f"{who} and has ended")
    return Proof(f"{who}{_does(timeline, rank.last)}")


def _does(timeline: Timeline, last: Arrival) -> str:
    """What it spends its time with now."""
    job = next((each for each in timeline.jobs if each.pid == last.pid), None)
    slices = job.slices[-2:] if job else []
    total = sum(each.wall_ns for each in slices)
    if not total:
        return ""
    spent = {name: sum(each.ns[name] for each in slices) for name in slices[0].ns}
    most = max(spent, key=lambda name: spent[name])
    return f"; {format_share(spent[most] / total)} of its time is {most} now"


def _where(timeline: Timeline, subject: Rank, missing: bool) -> Fix:
    if not missing:
        return Fix("See where the ranks stand that are not in it.")
    if ended(timeline.facts, subject.last.pid):
        return Fix(f"On {subject.node}, see why rank {subject.last.rank} ended: its log, and the kernel's.")
    text = f"On {subject.node}, see where the missing rank stands."
    return look(timeline.facts, subject.last.pid, text, "py-spy dump --pid {}")
