"""Findings of state outlive what they were told from.

The live diagnosis looks back some minutes, `explain` may be asked about a part, and old detail
goes when a recording grows too large. A state that was told stays told, unless somebody looks
again at all it was told from and does not find it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from ingero.model.finding import STATES, Finding


@dataclass(frozen=True, slots=True)
class StillStanding:
    """What of the findings told before still stands, beside those found now."""

    kept: list[Finding] = field(default_factory=list)
    withdrawn: list[Finding] = field(default_factory=list)


def weigh(
    told: Iterable[Finding], found: Iterable[Finding], from_ns: int, to_ns: int | None
) -> StillStanding:
    """`from_ns`, `to_ns`: all of this time was looked at again; None: to the end of the recording."""
    known = {each.key for each in found}
    weighed = StillStanding()
    for each in told:
        if each.kind not in STATES or each.key in known:
            continue
        again = from_ns <= each.first_ns and (to_ns is None or each.last_ns <= to_ns)
        (weighed.withdrawn if again else weighed.kept).append(each)
    return weighed


def since_first(found: Finding, told: Finding | None) -> Finding:
    """A state began when it was first told: who looks back some minutes sees only its end."""
    if told is None or told.first_ns >= found.first_ns:
        return found
    return replace(found, first_ns=told.first_ns)
