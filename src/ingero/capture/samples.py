"""Samples of the time on a core, per window, from the kernel's counters.

Counters only grow; a window is the difference. A counter that stood still for a while
is dropped to keep the map small.
"""

from __future__ import annotations

import numpy as np

from ingero.capture.maps import MapReader
from ingero.model import layout
from ingero.model.window import Records

IDLE_READS = 30  # readings without change after which a counter is dropped
COUNTED = np.dtype([("key", layout.SAMPLE_KEY), ("count", "<u8")])


class SampleBook:
    """Differences of the map of samples."""

    def __init__(self, fd: int) -> None:
        self._map = MapReader(fd, layout.SAMPLE_KEY, np.dtype([("count", "<u8")]))
        self._last: dict[bytes, tuple[int, int]] = {}  # count, readings without change

    def read(self) -> Records:
        """The keys that were seen since the last call, and how often (COUNTED)."""
        keys, values = self._map.read()
        raw, size = keys.tobytes(), keys.dtype.itemsize
        rows: list[int] = []
        counts: list[int] = []
        stale: list[int] = []
        for index, count in enumerate(values["count"].reshape(-1).tolist()):
            key = raw[index * size : (index + 1) * size]
            before, idle = self._last.get(key, (0, 0))
            if count != before:
                rows.append(index)
                counts.append(count - before)
                self._last[key] = (count, 0)
            elif idle >= IDLE_READS:
                stale.append(index)
                self._last.pop(key, None)
            else:
                self._last[key] = (count, idle + 1)
        found = np.zeros(len(rows), COUNTED)
        found["key"], found["count"] = keys[rows], counts
        self._map.delete(keys[stale])
        return found
