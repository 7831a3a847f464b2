"""Sums over stretches of time, from sums per slice that were read already.

Whole slices are added up in memory; only what a stretch begins and ends with amid a slice is
asked for again. So a stretch of an hour costs no more to read than one of a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ingero.model.window import Records

Span = tuple[int, int]
SpanRows = dict[str, Records]
# What is summed over stretches of time, and what tells its rows apart.
SUMMED = {
    "threads": ("pid", "tid"),
    "operations": ("pid", "op", "caller"),
    "culprits": ("victim_pid", "victim_tid", "pid", "throttled"),
    "wakers": ("pid", "tid", "waker_pid", "waker_tid", "kind", "bucket"),
}
LARGEST = ("comm", "feeder", "max_ns")  # not sums


class Grouped:
    """One table; which of its rows belong together is found out once."""

    def __init__(self, rows: Records, keys: tuple[str, ...]) -> None:
        self._rows = rows
        self._keys = keys
        if len(rows):
            marks = np.stack([rows[key] for key in keys], axis=1)
            _, self._first, which = np.unique(marks, axis=0, return_index=True, return_inverse=True)
            self._which: NDArray[np.int64] = which.reshape(-1)

    def summed(self, chosen: NDArray[np.bool_]) -> Records:
        """One row for each key among the chosen rows."""
        if not chosen.any():
            return self._rows[:0].copy()
        rows = self._rows[chosen]
        groups, which = np.unique(self._which[chosen], return_inverse=True)
        made = self._rows[self._first[groups]].copy()
        for name in rows.dtype.names or ():
            if name not in (*self._keys, "slice"):
                made[name] = 0
                (np.maximum if name in LARGEST else np.add).at(made[name], which, rows[name])
        return made

    def within(self, spans: Sequence[Span], origin_ns: int, slice_ns: int, whole: bool) -> NDArray[np.bool_]:
        """Rows of slices that begin in one of the stretches, or lie in it with all their time."""
        starts = origin_ns + self._rows["slice"] * slice_ns
        more = slice_ns if whole else 1
        chosen = np.zeros(len(starts), bool)
        for from_ns, to_ns in spans:
            chosen |= (starts >= from_ns) & (starts + more <= to_ns)
        return chosen


class SpanSums:
    """Sums over any stretches of one recording's time."""

    def __init__(
        self,
        tables: SpanRows,
        origin_ns: int,
        slice_ns: int,
        read: Callable[[Sequence[Span]], SpanRows] | None,
    ) -> None:
        """`read`: asks for parts of slices; None: slices are all that is known."""
        self._groups = {name: Grouped(tables[name], keys) for name, keys in SUMMED.items()}
        self._origin, self._slice = origin_ns, slice_ns
        self._read = read

    def over(self, spans: Sequence[Span]) -> SpanRows:
        edges = list(self._edges(spans)) if self._read else []
        beside = self._read(edges) if self._read and edges else {}
        found = {}
        for name, group in self._groups.items():
            chosen = group.within(spans, self._origin, self._slice, self._read is not None)
            parts = [group.summed(chosen), *([beside[name]] if beside else [])]
            rows = np.concatenate(parts)
            found[name] = Grouped(rows, SUMMED[name]).summed(np.ones(len(rows), bool)) if beside else rows
        return found

    def _edges(self, spans: Sequence[Span]) -> list[Span]:
        """What of the stretches lies in slices that they fill in part."""
        found: list[Span] = []
        for from_ns, to_ns in spans:
            first = -((self._origin - from_ns) // self._slice)  # the first that begins within
            last = (to_ns - self._origin) // self._slice
            if first >= last:
                found.append((from_ns, to_ns))
                continue
            begin, end = (self._origin + number * self._slice for number in (first, last))
            found += [edge for edge in ((from_ns, begin), (end, to_ns)) if edge[0] < edge[1]]
        return found
