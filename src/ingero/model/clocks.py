"""How far the clocks of nodes are apart, and how sure that is.

A recording keeps the times its node had; they are never rewritten. Whoever compares
times of several nodes asks Clocks for them on one clock, and for the error of that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """From an instant of the node's own on, up to the next one known, its clock is ahead by this much."""

    node: str
    from_ns: int  # by the node's clock; 0: from the beginning
    offset_ns: int  # of the node's instants minus those of the common clock
    error_ns: int | None = None  # the truth lies within this; None: nobody knows
    how: str = "given"  # given, measured, collectives
    rate: float = 0.0  # it gains so much in each nanosecond from then on


@dataclass(slots=True)
class Clocks:
    """Offsets of nodes, in order of time."""

    by_node: dict[str, list[ClockOffset]] = field(default_factory=dict)

    @classmethod
    def of(cls, offsets: Iterable[ClockOffset]) -> Clocks:
        found: dict[str, list[ClockOffset]] = {}
        for each in sorted(offsets, key=lambda each: each.from_ns):
            found.setdefault(each.node, []).append(each)
        return cls(found)

    def knows(self, node: str) -> bool:
        return node in self.by_node

    def offset_ns(self, node: str, at_ns: Times) -> Times:
        """What to take off this node's instants; 0 where nothing is known."""
        known = self.by_node.get(node, [])
        if not known:
            return np.zeros(len(at_ns), np.int64)
        begins = np.array([each.from_ns for each in known], np.int64)
        which = np.maximum(np.searchsorted(begins, at_ns, "right") - 1, 0)
        offsets = np.array([each.offset_ns for each in known], np.int64)[which]
        rates = np.array([each.rate for each in known])[which]
        # What was before the first one is as far off as it was then.
        gained = np.rint(rates * np.maximum(at_ns - begins[which], 0)).astype(np.int64)
        found: Times = offsets + gained
        return found

    def common_ns(self, node: str, at_ns: Times) -> Times:
        """This node's instants on the common clock."""
        return at_ns - self.offset_ns(node, at_ns)

    def own_ns(self, node: str, common_ns: int) -> int:
        """An instant of the common clock by the node's own."""
        return int(common_ns + self.offset_ns(node, np.array([common_ns], np.int64))[0])

    def error_ns(self, node: str, at_ns: int) -> int | None:
        """How far an instant may be off; None where nobody knows."""
        known = self.by_node.get(node, [])
        if not known:
            return None
        return known[max(0, bisect_right([each.from_ns for each in known], at_ns) - 1)].error_ns
