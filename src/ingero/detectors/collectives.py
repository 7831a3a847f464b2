"""Rounds of collectives: who came last, and how long the others waited for it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ingero.correlate.timeline import Timeline
from ingero.model.facts import Arrival


@dataclass(frozen=True, slots=True)
class Round:
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


def rounds_of(timeline: Timeline) -> dict[int, list[Round]]:
    """Complete rounds by communicator."""
    grouped: dict[tuple[int, int, str], list[Arrival]] = defaultdict(list)
    for each in timeline.arrivals:
        if each.nranks > 1:
            grouped[each.comm_hash, each.seq, each.op].append(each)
    found: dict[int, list[Round]] = defaultdict(list)
    for (comm, seq, _), members in grouped.items():
        ranks = {each.rank for each in members}
        if len(members) == members[0].nranks == len(ranks):
            found[comm].append(Round(comm, seq, tuple(sorted(members, key=lambda a: a.at_ns))))
    return found
