"""Who took a thread's core and who woke it, per window, from the kernel's counters.

Counters only grow; a window is the difference. Counters of threads that are gone,
or that stood still for a while, are dropped to keep the maps small.
"""

from __future__ import annotations

import numpy as np

from ingero.capture.maps import MapReader
from ingero.model import layout
from ingero.model.window import CULPRIT, WAKER, Records

IDLE_READS = 30  # readings without change after which a counter is dropped


class WhoBook:
    """Differences of one map of who_value."""

    def __init__(self, fd: int, key: np.dtype[np.void], row: np.dtype[np.void]) -> None:
        self._map = MapReader(fd, key, layout.WHO_VALUE)
        self._row = row
        self._names = [name for name in key.names or () if name in (row.names or ())]
        self._last: dict[bytes, tuple[int, int, int]] = {}  # ns, count, readings without change

    def read(self) -> Records:
        keys, values = self._map.read()
        values = values.reshape(-1)
        raw, size = keys.tobytes(), keys.dtype.itemsize
        spans, counts = values["ns"].tolist(), values["count"].tolist()
        changed: list[int] = []
        deltas: list[tuple[int, int]] = []
        stale: list[int] = []
        for index, (ns, count) in enumerate(zip(spans, counts, strict=True)):
            key = raw[index * size : (index + 1) * size]
            before_ns, before_count, idle = self._last.get(key, (0, 0, 0))
            if count != before_count:
                changed.append(index)
                deltas.append((ns - before_ns, count - before_count))
                self._last[key] = (ns, count, 0)
            elif idle >= IDLE_READS:
                stale.append(index)
                self._last.pop(key, None)
            else:
                self._last[key] = (ns, count, idle + 1)
        rows = self._rows(keys[changed], values[changed], deltas)
        self._map.delete(keys[stale])
        return rows

    def _rows(self, keys: Records, values: Records, deltas: list[tuple[int, int]]) -> Records:
        rows = np.zeros(len(keys), self._row)
        for name in self._names:
            rows[name] = keys[name]
        rows["comm"] = values["comm"]
        if deltas:
            rows["ns"], rows["count"] = np.array(deltas, np.uint64).T
        return rows


def culprits(fd: int) -> WhoBook:
    return WhoBook(fd, layout.CULPRIT_KEY, CULPRIT)


def wakers(fd: int) -> WhoBook:
    return WhoBook(fd, layout.WAKER_KEY, WAKER)
