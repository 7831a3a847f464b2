"""Which parts of the inputs make up the result.

The same recording may come in several inputs: a copy, an older state of it, or the
result of an earlier merge. It is taken once, from the input that has most of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ingero.errors import StoreError
from ingero.store.merge.source import Part, Source, describe
from ingero.units import clean


@dataclass(slots=True)
class Plan:
    """Parts taken, in order; the ids of earlier ones on a node stay as they are."""

    taken: list[tuple[Source, Part]] = field(default_factory=list)
    known: list[Part] = field(default_factory=list)  # left out: another part has all of it

    def of(self, source: Source) -> list[Part]:
        return [part for owner, part in self.taken if owner is source]

    @property
    def sources(self) -> list[Source]:
        """Those something is taken from, in order."""
        return list({id(source): source for source, _ in self.taken}.values())

    def whole(self, source: Source) -> bool:
        """Whether everything of a source is taken."""
        return len(self.of(source)) == len(source.parts)


def choose(sources: Sequence[Source], earlier: Source | None = None) -> Plan:
    """The earlier result comes first and then who began first: those keep their ids."""
    plan = Plan()
    for source in sorted(sources, key=lambda each: (each is not earlier, _begun_ns(each))):
        for part in source.parts:
            _consider(plan, source, part)
    return plan


def _begun_ns(source: Source) -> int:
    return min((each[2] for part in source.parts for each in part.recordings), default=0)


def _consider(plan: Plan, source: Source, part: Part) -> None:
    if any(taken.covers(part) for _, taken in plan.taken if taken.node == part.node):
        plan.known.append(part)
        return
    covered = [each for each in plan.taken if each[1].node == part.node and part.covers(each[1])]
    for each in covered:
        plan.taken.remove(each)
        plan.known.append(each[1])
    for _, other in plan.taken:
        both = part.shares(other)
        if both is not None:
            raise StoreError(
                f"{clean(str(other.path))} and {clean(str(part.path))} both have {describe(both)},"
                " and each has something the other lacks",
                hint="Merge only one of them, or both into files of their own.",
            )
    plan.taken.append((source, part))
