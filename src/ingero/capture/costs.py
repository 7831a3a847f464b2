"""What tracing took of each thread so far, read from memory shared with the kernel side."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from ingero.model import layout
from ingero.model.window import Records

THREADS = 8192  # of thread_costs, see maps.bpf.h
GROUPS = int(layout.Group.GROUPS)
NUMBERS = 2 * GROUPS + 4  # timed and counted by group, passed, records, walks, walk_ns
PASSED, RECORDS, WALKS, WALK_NS = range(2 * GROUPS, NUMBERS)


class Costs:
    """The kernel side's counters by thread; no system call to read them."""

    def __init__(self, fd: int) -> None:
        size = THREADS * layout.THREAD_COST.itemsize
        pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self._memory = mmap.mmap(fd, pages, mmap.MAP_SHARED, mmap.PROT_READ)
        self._rows: Records = np.frombuffer(self._memory, layout.THREAD_COST, THREADS)

    def read(self) -> Reading:
        used = np.flatnonzero(self._rows["tid"])
        return Reading(used, self._rows[used].copy())

    def close(self) -> None:
        self._rows = np.zeros(0, layout.THREAD_COST)
        self._memory.close()


class Reading:
    """All counters at one moment."""

    def __init__(self, slots: NDArray[np.int64], rows: Records) -> None:
        self.tids: NDArray[np.int64] = rows["tid"].astype(np.int64)
        self.pids: NDArray[np.int64] = rows["pid"].astype(np.int64)
        self.numbers = np.zeros((len(rows), NUMBERS), np.int64)
        self.numbers[:, :GROUPS] = rows["timed"]
        self.numbers[:, GROUPS : 2 * GROUPS] = rows["counted"]
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
        return np.maximum(change, 0)

    def by_thread(self, values: NDArray[np.int64] | NDArray[np.float64]) -> dict[int, int]:
        """Something computed of each thread, in the order of this reading."""
        return dict(zip(self.tids.tolist(), values.astype(np.int64).tolist(), strict=True))
