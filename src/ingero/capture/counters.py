"""What the kernel side counts, read once a second: who took a core and who woke, samples, disks, losses.

Counters only grow; a window is the difference to the last reading. A counter of somebody who is gone,
or that stood still for a while, is dropped to keep the maps small.
"""

from __future__ import annotations

import numpy as np

from ingero.model import layout
from ingero.model.layout import Loss
from ingero.model.window import CULPRIT, IO, WAKER, Records
from ingero.native import _shim


class MapReader:
    """One map, read again and again into the same buffers, which grow when needed.

    A per-CPU map's values come as a second dimension, one per core.
    """

    def __init__(
        self, fd: int, key: np.dtype[np.void], value: np.dtype[np.void], cpus: int = 1, entries: int = 256
    ) -> None:
        self._fd = fd
        self._key = key
        self._value = value
        self._cpus = cpus
        self._room(entries)

    def _room(self, entries: int) -> None:
        self._keys = np.zeros(entries, self._key)
        self._values = np.zeros((entries, self._cpus), self._value)

    def read(self) -> tuple[Records, Records]:
        """(keys, values); the arrays are overwritten by the next read."""
        while True:
            count = _shim.map_read_all(
                self._fd,
                self._keys.view(np.uint8),
                self._values.view(np.uint8).reshape(-1),
                self._key.itemsize,
                self._value.itemsize * self._cpus,
            )
            if count >= 0:
                return self._keys[:count], self._values[:count]
            self._room(len(self._keys) * 4)

    def delete(self, keys: Records) -> None:
        raw = keys.tobytes()
        size = self._key.itemsize
        for at in range(0, len(raw), size):
            _shim.map_delete(self._fd, raw[at : at + size])


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


# Disks: the kernel begins a counter anew where it needed the room for somebody busier. The longest
# request is only known of a window in which it was a new record.


SUMS = ("count", "bytes", "ns")
MAX_ROWS = 256  # per window, those who kept the disks busiest


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


REASONS = {
    int(reason): reason.name.removeprefix("LOSS_").lower() for reason in Loss if reason is not Loss.LOSSES
}


class LossBook:
    def __init__(self, fd: int, cpus: int) -> None:
        self._fd = fd
        self._counts = np.zeros(cpus, np.uint64)
        self._last = dict.fromkeys(REASONS, 0)

    def read(self) -> dict[str, int]:
        """Losses since the last reading, only those that happened."""
        found = {}
        for number, reason in REASONS.items():
            _shim.map_lookup(self._fd, number.to_bytes(4, "little"), self._counts)
            total = int(self._counts.sum())
            if total != self._last[number]:
                found[reason] = total - self._last[number]
                self._last[number] = total
        return found
