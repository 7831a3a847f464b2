"""What each process did with each operation, per window, from the kernel's counters.

The counters only grow; a window is the difference to the last reading, so nothing
is lost or counted twice between the two. The longest and shortest call are kept by
the kernel per second; here they are held against the histogram's difference.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from ingero.capture.maps import MapReader
from ingero.model import layout
from ingero.model.histogram import lower_bounds
from ingero.model.window import OPERATION, UNSAMPLED, Records

SUMS = ("count", "sum_ns", "bytes", "errors", "recorded", "dropped", "untimed")
WINDOW_BITS = 30  # the kernel's windows for extremes: see wire.h
BOUNDS = np.minimum(lower_bounds(), 2.0**62).astype(np.uint64)


class OperationBook:
    """Remembers the last reading and tells the difference."""

    def __init__(self, fd: int, cpus: int) -> None:
        self._map = MapReader(fd, layout.OP_KEY, layout.OP_STATS, cpus)
        self._keys: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._totals = np.zeros(0, OPERATION)
        self._unsampled: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.calls = 0  # all calls counted so far
        self.read_ns = time.monotonic_ns()  # when the last reading was

    def read(self, since_ns: int) -> Records:
        """Rows with calls since the last reading, which was at since_ns."""
        self.read_ns = time.monotonic_ns()
        keys, values = self._map.read()
        if not len(keys):
            return np.zeros(0, OPERATION)
        totals = self._sum(keys, values)
        numbers = keys.view(np.uint64).reshape(-1)
        order = np.argsort(numbers)
        numbers, totals, values = numbers[order].copy(), totals[order], values[order]
        change = self._subtract(numbers, totals)
        self._keys, self._totals = numbers, totals
        self._unsampled = values["unsampled"].sum(axis=1)
        self.calls = int(totals["count"].sum())
        busy = (change["count"] > 0) | (change["untimed"] > 0)
        change, values = change[busy], values[busy]
        self._extremes(change, values["extreme"], since_ns >> WINDOW_BITS)
        return change

    @staticmethod
    def _sum(keys: Records, values: Records) -> Records:
        totals = np.zeros(len(keys), OPERATION)
        for name in ("pid", "op", "caller"):
            totals[name] = keys[name]
        for name in SUMS:
            totals[name] = values[name].sum(axis=1)
        totals["split"] = values["split"].sum(axis=1)
        totals["slots"] = values["slots"].sum(axis=1, dtype=np.uint32)
        return totals

    def _subtract(self, numbers: NDArray[np.uint64], totals: Records) -> Records:
        change = totals.copy()
        if not len(self._keys):
            return change
        place = np.searchsorted(self._keys, numbers)
        place[place == len(self._keys)] = 0
        known = self._keys[place] == numbers
        before = self._totals[place[known]]
        for name in (*SUMS, "split", "slots"):
            change[name][known] -= before[name]
        return change

    @staticmethod
    def _extremes(change: Records, extremes: Records, window: int) -> None:
        """The kernel's extremes where they fit the slots that grew, else the slots' own bounds."""
        grew = change["slots"] > 0
        lowest = grew.argmax(axis=1)
        highest = grew.shape[1] - 1 - grew[:, ::-1].argmax(axis=1)
        low, high = BOUNDS[:-1], BOUNDS[1:]
        recent = (extremes["window"] >= window) & (extremes["max_ns"] > 0)
        top = np.where(recent, extremes["max_ns"], 0)
        fits = (top >= low[highest][:, None, None]) & (top < high[highest][:, None, None])
        best = np.where(fits, top, 0).max(axis=(1, 2))
        change["max_ns"] = np.where(best > 0, best, np.minimum(high[highest], change["sum_ns"]))
        bottom = np.where(recent, extremes["min_ns"], np.iinfo(np.uint64).max)
        fits = (bottom >= low[lowest][:, None, None]) & (bottom < high[lowest][:, None, None])
        least = np.where(fits, bottom, np.iinfo(np.uint64).max).min(axis=(1, 2))
        change["min_ns"] = np.where(least < np.iinfo(np.uint64).max, least, low[lowest])

    def unsampled(self, pids: set[int] | None = None) -> Records:
        """Calls no record stands for, of processes that ended (all of them, if None).

        A sample stands for the calls since the one before; these came after the last.
        """
        chosen = self._unsampled > 0
        if pids is not None:
            chosen &= np.isin(self._totals["pid"], list(pids))
        rows = np.zeros(int(chosen.sum()), UNSAMPLED)
        for name in ("pid", "op", "caller"):
            rows[name] = self._totals[name][chosen]
        rows["calls"] = self._unsampled[chosen]
        return rows

    def forget(self, pids: set[int]) -> None:
        """Drop the counters of processes that are gone."""
        gone = np.isin(self._totals["pid"], list(pids))
        if gone.any():
            self._map.delete(self._keys[gone].view(layout.OP_KEY))
            self._keys, self._totals = self._keys[~gone], self._totals[~gone]
            self._unsampled = self._unsampled[~gone]
