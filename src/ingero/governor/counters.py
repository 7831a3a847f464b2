"""What tracing took of each thread so far, read from memory shared with the kernel side: no system call."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from ingero.governor.seen import METERS
from ingero.model import layout
from ingero.model.governor import HitCost
from ingero.model.window import Records

THREADS = 8192  # of thread_costs, see maps.bpf.h
OPERATIONS = 512  # of op_hits
NUMBERS = 2 * METERS + 4  # timed and counted by meter, passed, records, walks, walk_ns
PASSED, RECORDS, WALKS, WALK_NS = range(2 * METERS, NUMBERS)


def _mapped(fd: int, size: int) -> mmap.mmap:
    return mmap.mmap(fd, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ)


class Counters:
    """Hits by thread and meter, and of functions without a meter of their own."""

    def __init__(self, thread_costs: int, op_hits: int) -> None:
        self._memory = _mapped(thread_costs, THREADS * layout.THREAD_COST.itemsize)
        self._rows: Records = np.frombuffer(self._memory, layout.THREAD_COST, THREADS)
        self._hits_memory = _mapped(op_hits, OPERATIONS * 8)
        self._hits: NDArray[np.uint64] = np.frombuffer(self._hits_memory, np.uint64, OPERATIONS)

    def read(self) -> Reading:
        used = np.flatnonzero(self._rows["tid"])
        return Reading(used, self._rows[used].copy())

    def hits(self) -> NDArray[np.int64]:
        """By operation."""
        return self._hits.astype(np.int64)

    def close(self) -> None:
        self._rows, self._hits = np.zeros(0, layout.THREAD_COST), np.zeros(0, np.uint64)
        self._memory.close()
        self._hits_memory.close()


class Reading:
    """All threads' counters at one moment."""

    def __init__(self, slots: NDArray[np.int64], rows: Records) -> None:
        self.tids: NDArray[np.int64] = rows["tid"].astype(np.int64)
        self.pids: NDArray[np.int64] = rows["pid"].astype(np.int64)
        self.numbers = np.zeros((len(rows), NUMBERS), np.int64)
        self.numbers[:, :METERS] = rows["timed"]
        self.numbers[:, METERS : 2 * METERS] = rows["counted"]
        for at, name in ((PASSED, "passed"), (RECORDS, "records"), (WALKS, "walks"), (WALK_NS, "walk_ns")):
            self.numbers[:, at] = rows[name]
        self._slots = slots

    def since(self, before: Reading | None) -> NDArray[np.int64]:
        """What was added, in the order of this reading; a slot may have got another thread."""
        if before is None or not len(before.tids):
            return self.numbers
        place = np.searchsorted(before._slots, self._slots)
        place[place == len(before._slots)] = 0
        same = (before._slots[place] == self._slots) & (before.tids[place] == self.tids)
        change: NDArray[np.int64] = self.numbers - np.where(same[:, None], before.numbers[place], 0)
        counts = change[:, : 2 * METERS]
        counts[counts < -(1 << 31)] += 1 << 32  # these wrap
        return np.maximum(change, 0)

    def by_thread(self, values: NDArray[np.int64] | NDArray[np.float64]) -> dict[int, int]:
        """Something computed of each thread, in the order of this reading."""
        return dict(zip(self.tids.tolist(), values.astype(np.int64).tolist(), strict=True))

    def by_process(self, values: NDArray[np.int64] | NDArray[np.float64]) -> dict[int, float]:
        """The same, summed over the threads of a process."""
        found: dict[int, float] = {}
        for at in np.flatnonzero(values).tolist():
            pid = int(self.pids[at])
            found[pid] = found.get(pid, 0.0) + float(values[at])
        return found

    def vectors(self, rows: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
        """Rows of threads, summed over those of a process."""
        found: dict[int, NDArray[np.int64]] = {}
        for at in np.flatnonzero(rows.any(axis=1)).tolist():
            pid = int(self.pids[at])
            found[pid] = found[pid] + rows[at] if pid in found else rows[at]
        return found


def calls(change: NDArray[np.int64]) -> NDArray[np.int64]:
    """By thread and meter, timed or not."""
    found: NDArray[np.int64] = change[:, :METERS] + change[:, METERS : 2 * METERS]
    return found


def untimed(change: NDArray[np.int64]) -> NDArray[np.int64]:
    """Calls counted alone, by thread."""
    found: NDArray[np.int64] = change[:, METERS : 2 * METERS].sum(axis=1)
    return found


def hit_ns(change: NDArray[np.int64], cost: HitCost) -> NDArray[np.float64]:
    """What hits took, by thread."""
    found: NDArray[np.float64] = (
        change[:, :METERS].sum(axis=1) * cost.ns
        + untimed(change) * cost.counted_ns
        + change[:, PASSED] * cost.passed_ns
    )
    return found


def detail_ns(change: NDArray[np.int64], cost: HitCost) -> NDArray[np.float64]:
    """What records and stacks took, by thread."""
    found: NDArray[np.float64] = (change[:, RECORDS] * cost.record_ns + change[:, WALK_NS]).astype(np.float64)
    return found


def hits(change: NDArray[np.int64]) -> int:
    return int(change[:, : PASSED + 1].sum())
