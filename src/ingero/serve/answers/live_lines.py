"""Which line most of an operation's time comes from, as the live view shows it.

Only calls with a record have a stack; each counts for all the calls it stands for. What
has no line counts, too: a line that is few of many is not the line to look at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ingero.correlate.activity import LEAST_SHARE, source_of
from ingero.model.finding import SourceLine
from ingero.model.stack import ResolvedStack
from ingero.model.window import Window, aligned

STACKS = 8192  # remembered, as many as the agent remembers to have told (capture/stacks.py)
LINES = 128  # of one operation


@dataclass
class Lines:
    """The time of one operation, by line."""

    total_ns: float = 0.0
    ns: dict[SourceLine, float] = field(default_factory=dict)

    def add(self, source: SourceLine | None, ns: float) -> None:
        self.total_ns += ns
        if source is None:
            return
        self.ns[source] = self.ns.get(source, 0.0) + ns
        if len(self.ns) > LINES:
            for small in sorted(self.ns, key=lambda line: self.ns[line])[: LINES // 2]:
                del self.ns[small]

    def heaviest(self) -> tuple[SourceLine | None, float | None]:
        """The line and its share of the time; None where no line has much of it."""
        if not self.ns or not self.total_ns:
            return None, None
        line = max(self.ns, key=lambda each: self.ns[each])
        share = self.ns[line] / self.total_ns
        return (line, share) if share >= LEAST_SHARE else (None, None)


class LineBook:
    """The line behind every stack met."""

    def __init__(self) -> None:
        self._sources: dict[int, SourceLine | None] = {}

    def learn(self, stacks: Iterable[ResolvedStack]) -> None:
        for stack in stacks:
            self._sources.pop(stack.hash, None)  # the one told last stands last
            self._sources[stack.hash] = source_of(stack.frames)
            if len(self._sources) > STACKS:
                del self._sources[next(iter(self._sources))]

    def sums(self, window: Window) -> Iterator[tuple[int, int, SourceLine | None, float]]:
        """PID, operation, line, nanoseconds: of a window's calls, those from one place together."""
        calls = window.calls
        stacks, stack_at = np.unique(aligned(window.call_stacks, len(calls)), return_inverse=True)
        kinds = calls["h"]["pid"].astype(np.int64) << 16 | calls["op"]
        kinds, kind_at = np.unique(kinds, return_inverse=True)
        places, at = np.unique(kind_at * max(len(stacks), 1) + stack_at, return_inverse=True)
        spent = np.bincount(at, calls["duration_ns"] * calls["weight"].astype(np.float64), len(places))
        for place, ns in zip(places.tolist(), spent.tolist(), strict=True):
            kind, stack = divmod(place, len(stacks))
            pid, op = divmod(int(kinds[kind]), 1 << 16)
            yield pid, op, self._sources.get(int(stacks[stack])), ns
