"""What each process did with each operation, per window, from the kernel's counters.

The counters only grow; a window is the difference to the last reading, so nothing
is lost or counted twice between the two. Threads of a process share counters eight ways
(SHARES in wire.h); only counters that grew are looked at. The longest and shortest call are
kept by the kernel per second; here they are held against the histogram's difference.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from ingero.capture.counters import MapReader
from ingero.model import histogram, layout
from ingero.model.histogram import lower_bounds
from ingero.model.layout import CallFlag, Extremes, Why
from ingero.model.window import OPERATION, UNSAMPLED, Records

SUMS = ("count", "sum_ns", "bytes", "errors", "recorded", "dropped", "untimed")
ARRAYS = ("split", "slots")
# What is kept of a reading: what the next one is subtracted from.
KEPT = np.dtype([(name, layout.OP_STATS[name]) for name in (*SUMS, *ARRAYS)])
WINDOW_BITS = int(Extremes.WINDOW_BITS)  # the kernel's windows for extremes
BOUNDS = np.minimum(lower_bounds(), 2.0**62).astype(np.uint64)
NEVER = np.iinfo(np.uint64).max
Numbers = NDArray[np.uint64]


class OperationBook:
    """Remembers the last reading and tells the difference."""

    def __init__(self, fd: int) -> None:
        self._map = MapReader(fd, layout.OP_KEY, layout.OP_STATS)
        self._keys = np.zeros(0, layout.OP_KEY)  # sorted as numbers, like the two below
        self._kept = np.zeros(0, KEPT)
        self._unsampled: Numbers = np.zeros(0, np.uint64)
        self.calls = 0  # all calls counted so far
        self.read_ns = time.monotonic_ns()  # when the last reading was

    def read(self, since_ns: int) -> Records:
        """Rows with calls since the last reading, which was at since_ns."""
        self.read_ns = time.monotonic_ns()
        keys, values = self._map.read()
        return self.differences(keys, values[:, 0], since_ns)

    def differences(self, keys: Records, values: Records, since_ns: int) -> Records:
        """The same of a reading: rows of keys and counters, in any order."""
        if not len(keys):
            return np.zeros(0, OPERATION)
        numbers = keys.view(np.uint64)
        order = np.argsort(numbers)
        if not np.array_equal(numbers[order], self._keys.view(np.uint64)):
            self._meet(keys[order])
        self._unsampled = values["unsampled"][order]
        self.calls = int(values["count"].sum())
        grown = np.flatnonzero(_grown(values, self._kept, order))
        if not len(grown):
            return np.zeros(0, OPERATION)
        some = values[order[grown]]
        change = _subtract(some, self._kept, grown)
        busy = (change["count"] > 0) | (change["untimed"] > 0)
        return _rows(self._keys[grown][busy], change[busy], some["extreme"][busy], since_ns >> WINDOW_BITS)

    def _meet(self, keys: Records) -> None:
        """There are new counters, or some are gone."""
        numbers, before = keys.view(np.uint64), self._keys.view(np.uint64)
        kept = np.zeros(len(keys), KEPT)
        if len(before):
            place = np.minimum(np.searchsorted(before, numbers), len(before) - 1)
            known = before[place] == numbers
            kept[known] = self._kept[place[known]]
        self._keys, self._kept = keys.copy(), kept

    def unsampled(self, pids: set[int] | None = None) -> Records:
        """Calls no record stands for, of processes that ended (all of them, if None).

        A sample stands for the calls since the one before; these came after the last.
        """
        chosen = self._unsampled > 0
        if pids is not None:
            chosen &= np.isin(self._keys["pid"], list(pids))
        rows = np.zeros(int(chosen.sum()), UNSAMPLED)
        for name in ("pid", "op", "caller"):
            rows[name] = self._keys[name][chosen]
        rows["calls"] = self._unsampled[chosen]
        return rows

    def forget(self, pids: set[int]) -> None:
        """Drop the counters of processes that are gone."""
        gone = np.isin(self._keys["pid"], list(pids))
        if gone.any():
            self._map.delete(self._keys[gone])
            self._keys, self._kept = self._keys[~gone], self._kept[~gone]
            self._unsampled = self._unsampled[~gone]


def _grown(values: Records, kept: Records, order: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which counters grew. Each call adds to `count` last, or to one of those after it."""
    grown = np.zeros(len(kept), bool)
    for name in SUMS:
        grown |= values[name][order] != kept[name]
    return grown


def _subtract(values: Records, kept: Records, at: NDArray[np.intp]) -> Records:
    """What was added since, and remember it."""
    change = np.empty(len(values), KEPT)
    for name in (*SUMS, *ARRAYS):
        change[name] = values[name] - kept[name][at]
        kept[name][at] = values[name]
    return change


def _rows(keys: Records, change: Records, extremes: Records, window: int) -> Records:
    """One row for each process, operation and caller; their shares lie behind each other after sorting."""
    if not len(keys):
        return np.zeros(0, OPERATION)
    whose = np.zeros(len(keys), UNSAMPLED)
    for name in ("pid", "op", "caller"):
        whose[name] = keys[name]
    numbers = np.ascontiguousarray(whose.view(np.uint64).reshape(-1, 2)[:, 0])
    order = np.argsort(numbers, kind="stable")
    first = np.flatnonzero(np.diff(numbers[order], prepend=numbers[order][:1] + 1))
    rows = np.zeros(len(first), OPERATION)
    for name in ("pid", "op", "caller"):
        rows[name] = keys[name][order][first]
    for name in (*SUMS, *ARRAYS):
        rows[name] = np.add.reduceat(change[name][order], first, axis=0)
    _extremes(rows, extremes[order], first, window)
    return rows


def _extremes(rows: Records, extremes: Records, first: NDArray[np.intp], window: int) -> None:
    """The kernel's extremes where they fit the slots that grew, else the slots' own bounds.

    Where they fit for one share and not for another, the other's may lie beyond by less than a slot: the
    mean is between the two all the same.
    """
    mean = rows["sum_ns"] // np.maximum(rows["count"], 1)
    grew = rows["slots"] > 0
    lowest = grew.argmax(axis=1)
    highest = grew.shape[1] - 1 - grew[:, ::-1].argmax(axis=1)
    low, high = BOUNDS[:-1], BOUNDS[1:]
    of = np.repeat(np.arange(len(first)), np.diff(first, append=len(extremes)))  # the row each belongs to
    recent = (extremes["window"] >= window) & (extremes["max_ns"] > 0)
    top = np.where(recent, extremes["max_ns"], 0)
    fits = (top >= low[highest][of][:, None]) & (top < high[highest][of][:, None])
    best = np.maximum.reduceat(np.where(fits, top, 0).max(axis=1), first)
    rows["max_ns"] = np.maximum(mean, np.where(best > 0, best, np.minimum(high[highest], rows["sum_ns"])))
    bottom = np.where(recent, extremes["min_ns"], NEVER)
    fits = (bottom >= low[lowest][of][:, None]) & (bottom < high[lowest][of][:, None])
    least = np.minimum.reduceat(np.where(fits, bottom, NEVER).min(axis=1), first)
    rows["min_ns"] = np.minimum(mean, np.where(least < NEVER, least, low[lowest]))


# Calls the kernel could not count, because it had no memory for new counters just then.
#
# Many new operations at once outrun the kernel's stock of memory, which is
# refilled a moment later. Such a call has a record instead, and is counted from it.


UNCOUNTED_SUMS = ("count", "sum_ns", "bytes", "errors", "recorded", "dropped", "split", "slots")


def with_uncounted(operations: Records, calls: Records) -> Records:
    """The window's operations, and in them the calls known only from their records."""
    extra = calls[(calls["why"] & Why.WHY_UNCOUNTED) > 0]
    if not len(extra):
        return operations
    rows = {_key(row): row.copy() for row in operations}
    for call in extra:
        row = _as_row(call)
        known = rows.get(_key(row))
        rows[_key(row)] = row if known is None else _added(known, row)
    return np.array(list(rows.values()), OPERATION)


def _key(row: np.void) -> tuple[int, int, int]:
    return int(row["pid"]), int(row["op"]), int(row["caller"])


def _as_row(call: np.void) -> np.void:
    row: np.void = np.zeros(1, OPERATION)[0]
    flags = int(call["flags"])
    runtime, direct = flags & CallFlag.CALL_FROM_RUNTIME, flags & CallFlag.CALL_DIRECT
    took_ns = call["duration_ns"]
    row["pid"], row["op"] = call["h"]["pid"], call["op"]
    row["caller"] = 1 if runtime else 2 if direct else 0
    row["count"] = row["recorded"] = 1
    row["sum_ns"] = row["min_ns"] = row["max_ns"] = took_ns
    row["errors"] = bool(int(call["why"]) & Why.WHY_ERROR)
    row["bytes"] = 0 if flags & CallFlag.CALL_NO_BYTES or row["errors"] else call["bytes"]
    row["split"] = call["split"]
    row["slots"][histogram.slot_of([took_ns])[0]] = 1
    return row


def _added(known: np.void, row: np.void) -> np.void:
    for name in UNCOUNTED_SUMS:
        known[name] += row[name]
    known["min_ns"] = min(known["min_ns"], row["min_ns"])
    known["max_ns"] = max(known["max_ns"], row["max_ns"])
    return known
