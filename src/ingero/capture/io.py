"""What processes that are no targets asked of the disks, per window, from the kernel's counters.

Counters only grow, until the kernel needs the room for somebody busier and begins
anew. The longest request is only known of a window in which it was a new record.
"""

from __future__ import annotations

import numpy as np

from ingero.capture.maps import MapReader
from ingero.model import layout
from ingero.model.window import IO, Records

SUMS = ("count", "bytes", "ns")
MAX_ROWS = 256  # per window, those who kept the disks busiest
IDLE_READS = 30  # readings without change after which a counter is dropped


class IoBook:
    """Differences of the map io_stats, without what this process did itself."""

    def __init__(self, fd: int, own_pid: int) -> None:
        self._map = MapReader(fd, layout.IO_KEY, layout.IO_VALUE)
        self._own_pid = own_pid
        self._last: dict[bytes, np.void] = {}
        self._idle: dict[bytes, int] = {}

    def read(self) -> Records:
        """One row per process, kind and disk that did something."""
        keys, values = self._map.read()
        rows = np.zeros(len(keys), IO)
        for name in ("pid", "write", "dev"):
            rows[name] = keys[name]
        stale = [
            at
            for at, (key, value) in enumerate(zip(keys, values.reshape(-1), strict=True))
            if self._differ(rows[at], key.tobytes(), value)
        ]
        self._map.delete(keys[stale])
        rows = rows[(rows["count"] > 0) & (rows["pid"] != self._own_pid)]
        busiest: Records = rows[np.argsort(rows["ns"])[::-1][:MAX_ROWS]]
        return busiest

    def _differ(self, row: np.void, key: bytes, value: np.void) -> bool:
        """Fill a row with what is new; whether the counter has stood still for long."""
        before = self._last.get(key)
        if before is not None and value["count"] < before["count"]:
            before = None
        for name in SUMS:
            row[name] = value[name] - (before[name] if before is not None else 0)
        record = before is None or value["max_ns"] > before["max_ns"]
        row["max_ns"], row["comm"] = int(value["max_ns"]) if record else -1, value["comm"]
        self._last[key] = value.copy()
        self._idle[key] = 0 if row["count"] else self._idle.get(key, 0) + 1
        if self._idle[key] <= IDLE_READS:
            return False
        del self._last[key], self._idle[key]
        return True
