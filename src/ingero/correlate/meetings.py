"""Collectives of ranks on several nodes, joined by communicator and number.

A meeting is a table: a row for each collective all ranks of a communicator were seen in, a
column for each rank. Times are by each node's own clock; nothing here compares two nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingero.correlate.timeline import Timeline
from ingero.model.facts import Arrival, Facts

NEVER = 0  # in `done`: when the wait after it ended is not known
LEAST_ROUNDS = 5  # somebody is last in every round; in fewer, by chance the same
WAITED_NS = 20_000  # a call that returns sooner found the GPU done already, and says not since when
CLOSED = 0.5  # of the ranks wait for the GPU after a collective: then it ends a step
Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RankMember:
    """One rank of a communicator."""

    rank: int
    node: str
    pid: int


@dataclass(frozen=True, slots=True)
class Meeting:
    """All collectives of one communicator that end a step; `at` and `done` are rounds by ranks."""

    comm_hash: int
    members: tuple[RankMember, ...]
    at: Times  # when each rank came
    done: Times  # when its wait for the GPU after that was over; NEVER: not known
    rounds: int  # of all collectives, those within a step included

    @property
    def nodes(self) -> list[str]:
        return list(dict.fromkeys(member.node for member in self.members))

    def columns(self, node: str) -> list[int]:
        return [at for at, member in enumerate(self.members) if member.node == node]


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A communicator of which not all ranks were seen."""

    comm_hash: int
    nodes: tuple[str, ...]
    seen: int
    nranks: int


def meetings_of(timelines: Mapping[str, Timeline]) -> tuple[list[Meeting], list[Incomplete]]:
    """Of communicators with ranks on several of these nodes."""
    by_comm: dict[int, dict[RankMember, list[Arrival]]] = defaultdict(lambda: defaultdict(list))
    sizes: dict[int, int] = {}
    for node, timeline in timelines.items():
        for each in (*timeline.facts.arrivals, *timeline.facts.unmatched):
            by_comm[each.comm_hash][RankMember(each.rank, node, each.pid)].append(each)
            sizes[each.comm_hash] = max(each.nranks, sizes.get(each.comm_hash, 0))
    found, incomplete = [], []
    ends = _Ends(timelines)
    for comm, ranks in _reunited(by_comm, sizes).items():
        nodes = tuple(sorted({member.node for member in ranks}))
        seen = len({member.rank for member in ranks})
        if seen < sizes[comm]:
            incomplete.append(Incomplete(comm, nodes, seen, sizes[comm]))
        elif len(nodes) > 1:
            meeting = _joined(comm, ranks, sizes[comm], ends) or _laid(comm, ranks, sizes[comm], ends)
            found += [meeting] if meeting else []
    return found, incomplete


def _reunited(
    by_comm: Mapping[int, Mapping[RankMember, list[Arrival]]], sizes: Mapping[int, int]
) -> dict[int, Mapping[RankMember, list[Arrival]]]:
    """A split has our name where its making was seen and NCCL's on nodes that came later: one again.

    Two parts are one where each has just the ranks the other lacks, on other nodes, and nobody else has.
    Whether their rounds really are the same is seen when they are laid side by side.
    """
    parts = {comm: {each.rank for each in ranks} for comm, ranks in by_comm.items()}
    parts = {comm: ranks for comm, ranks in parts.items() if len(ranks) < sizes[comm]}

    def others(comm: int) -> list[int]:
        lacks, nodes = set(range(sizes[comm])) - parts[comm], {each.node for each in by_comm[comm]}
        return [
            other
            for other, ranks in parts.items()
            if ranks == lacks
            and sizes[other] == sizes[comm]
            and _numbered(by_comm[other]) != _numbered(by_comm[comm])
            and nodes.isdisjoint(each.node for each in by_comm[other])
        ]

    whole = dict(by_comm)
    for comm in [comm for comm in parts if _numbered(by_comm[comm])]:
        match others(comm):
            case [later] if others(later) == [comm]:
                whole[comm] = {**by_comm[comm], **whole.pop(later)}
    return whole


def _numbered(ranks: Mapping[RankMember, list[Arrival]]) -> bool:
    return any(each.seq >= 0 for arrivals in ranks.values() for each in arrivals)


class _Ends:
    """When processes' waits for the GPU were over."""

    def __init__(self, timelines: Mapping[str, Timeline]) -> None:
        self._facts = {node: timeline.facts for node, timeline in timelines.items()}
        self._known: dict[tuple[str, int], Times] = {}

    def of(self, node: str, pid: int) -> Times:
        if (node, pid) not in self._known:
            self._known[node, pid] = _wait_ends(self._facts[node], pid)
        return self._known[node, pid]


def _wait_ends(facts: Facts, pid: int) -> Times:
    syncs = [number for number, op in facts.ops.items() if op.kind == "sync"]
    marks = [facts.marks(pid, number) for number in syncs]
    ends = [
        each[:, 0] + each[:, 1] for each in (mark[mark[:, 1] >= WAITED_NS] for mark in marks) if len(each)
    ]
    return np.sort(np.concatenate(ends)) if ends else np.zeros(0, np.int64)


def _joined(
    comm: int, ranks: Mapping[RankMember, Iterable[Arrival]], nranks: int, ends: _Ends
) -> Meeting | None:
    members = _one_each(ranks)
    if len(members) != nranks:
        return None  # two processes say they are the same rank
    arrivals = [
        {(each.seq, each.op): each.at_ns for each in ranks[member] if each.seq >= 0} for member in members
    ]
    common = set(arrivals[0]).intersection(*arrivals[1:])
    keys = sorted(common)
    if len(keys) < LEAST_ROUNDS:
        return None
    at = np.array([[mine[key] for mine in arrivals] for key in keys], np.int64)
    order = np.argsort(at[:, 0], kind="stable")
    at = at[order]
    done = np.stack(
        [_done(at[:, column], ends.of(member.node, member.pid)) for column, member in enumerate(members)],
        axis=1,
    )
    closing = (done != NEVER).mean(axis=1) >= CLOSED
    chosen = closing if closing.sum() >= LEAST_ROUNDS else np.ones(len(at), bool)
    return Meeting(comm, tuple(members), at[chosen], done[chosen], len(keys))


def _laid(
    comm: int, ranks: Mapping[RankMember, Iterable[Arrival]], nranks: int, ends: _Ends
) -> Meeting | None:
    """Where some have no numbers, because their node came amid the job: by when their waits ended."""
    members = _one_each(ranks)
    if len(members) != nranks:
        return None
    came = [np.sort(np.array([each.at_ns for each in ranks[member]], np.int64)) for member in members]
    done = [_done(at, ends.of(member.node, member.pid)) for at, member in zip(came, members, strict=True)]
    closing = [mine != NEVER for mine in done]
    came = [at[chosen] for at, chosen in zip(came, closing, strict=True)]
    done = [mine[chosen] for mine, chosen in zip(done, closing, strict=True)]
    places = [np.arange(len(done[0]))]
    for its in done[1:]:
        offset_ns = offset_between(done[0], its)
        if offset_ns is None:
            return None
        places.append(matched(done[0], its, offset_ns))
    all_seen = np.all([mine >= 0 for mine in places], axis=0)
    if all_seen.sum() < LEAST_ROUNDS:
        return None
    chosen = [mine[all_seen] for mine in places]
    return Meeting(
        comm,
        tuple(members),
        np.stack([at[where] for at, where in zip(came, chosen, strict=True)], axis=1),
        np.stack([mine[where] for mine, where in zip(done, chosen, strict=True)], axis=1),
        int(all_seen.sum()),
    )


def _one_each(ranks: Mapping[RankMember, Iterable[Arrival]]) -> list[RankMember]:
    """In order of their ranks. A job that was started anew has its ranks twice: the later ones count."""
    last: dict[int, tuple[int, RankMember]] = {}
    for member, arrivals in ranks.items():
        newest = max(each.at_ns for each in arrivals)
        if member.rank not in last or newest > last[member.rank][0]:
            last[member.rank] = (newest, member)
    return [last[rank][1] for rank in sorted(last)]


def _done(at: Times, ends: Times) -> Times:
    """The first wait that ended after each arrival and before the rank's next one."""
    where = np.searchsorted(ends, at, "right")
    found = np.append(ends, np.iinfo(np.int64).max)[where]
    following = np.append(at[1:], np.iinfo(np.int64).max - 1)
    return np.where(found <= following, found, NEVER)


# Collectives without a number, of communicators that were met amid a job, laid side by side across nodes.
#
# Ranks of one node are laid side by side by time (ranks.py). Clocks of nodes may be apart by more than a
# step, so here the steps' own unevenness decides: all ranks are let go together, so the ends of their waits
# for the GPU follow each other at the same distances on every node, and at no other place do they fit as
# well.


REACH_NS = 2_000_000_000  # clocks that are further apart are not looked for
LEAST_ENDS = 20  # fewer fit by chance
MOST_ENDS = 400  # that are tried, the latest
AS_GOOD = 1.5  # times as wide as the best: then the clocks that are nearer are right
LEAST_WIDTH_NS = 50_000
OVERLAP = 0.5  # of the shorter one
NEAR = 0.4  # of a step: an end that lies further off is another step's


def offset_between(mine: Times, its: Times) -> int | None:
    """By how much `its` ends are later than `mine`, where they are those of the same steps."""
    mine, its = mine[-MOST_ENDS:], its[-MOST_ENDS:]
    shorter = min(len(mine), len(its))
    if shorter < LEAST_ENDS:
        return None
    scored = []
    for shift in range(-len(mine) + 1, len(its)):
        start, end = max(0, -shift), min(len(mine), len(its) - shift)
        if end - start < max(LEAST_ENDS, OVERLAP * shorter):
            continue
        apart = its[start + shift : end + shift] - mine[start:end]
        middle = int(np.median(apart))
        if abs(middle) <= REACH_NS:
            scored.append((float(np.median(np.abs(apart - middle))), middle))
    if not scored:
        return None
    least = max(min(scored)[0], LEAST_WIDTH_NS)
    return min((abs(middle), middle) for width, middle in scored if width <= AS_GOOD * least)[1]


def matched(mine: Times, its: Times, offset_ns: int) -> NDArray[np.int64]:
    """For each of my ends the place of its one of the same step; -1: there is none."""
    if len(mine) < 2 or not len(its):
        return np.full(len(mine), -1, np.int64)
    there = its - offset_ns
    right = np.clip(np.searchsorted(there, mine), 1, max(len(there) - 1, 1))
    left = right - 1
    right = np.minimum(right, len(there) - 1)
    nearest = np.where(np.abs(there[left] - mine) <= np.abs(there[right] - mine), left, right)
    near = np.abs(there[nearest] - mine) <= NEAR * np.median(np.diff(mine))
    found: NDArray[np.int64] = np.where(near, nearest, -1)
    return found
