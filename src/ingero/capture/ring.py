"""Empties the ring into arrays, one per record type.

The arrays are made once and reused; what is handed on is a copy of the filled part.
Nothing here looks at a single record.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ingero.model import layout
from ingero.model.layout import Capacity, RecordType
from ingero.model.window import Records
from ingero.native import _shim

Room = Mapping[RecordType, tuple[np.dtype[np.void], int]]

# Room per call of drain(): calls flood, the others trickle.
ROOM: Room = {
    RecordType.REC_CALL: (layout.CALL, 8192),
    RecordType.REC_WAIT: (layout.WAIT, 4096),
    RecordType.REC_PROCESS: (layout.PROCESS, 2048),
    RecordType.REC_THREAD: (layout.THREAD_TOTALS, 2048),
    RecordType.REC_BLOCK: (layout.BLOCK, 4096),
    RecordType.REC_TCP: (layout.TCP, 1024),
    RecordType.REC_OOM: (layout.OOM, 64),
    RecordType.REC_XID: (layout.XID, 64),
}

# The ring for what is sent once and is large.
FRAMES_RING_BYTES = int(Capacity.FRAMES_RING_BYTES)
FRAMES_ROOM: Room = {
    RecordType.REC_STACK: (layout.STACK, 256),
    RecordType.REC_CODE: (layout.CODE, 256),
    RecordType.REC_CODE_LONG: (layout.CODE_LONG, 32),
    RecordType.REC_WAIT_STACK: (layout.WAIT_STACK, 1024),
    RecordType.REC_NAME: (layout.NAME, 256),
    RecordType.REC_STARTED: (layout.STARTED, 128),
}


class RingReader:
    """Collects records between windows."""

    def __init__(self, fd: int, size: int, rooms: Room = ROOM) -> None:
        self._ring = _shim.Ring(fd, size)
        self._rooms = rooms
        # As bytes: NumPy copies records field by field, bytes at once.
        self._arrays = {
            kind: np.zeros(room * dtype.itemsize, np.uint8) for kind, (dtype, room) in rooms.items()
        }
        self._targets = {int(kind): (array, rooms[kind][0].itemsize) for kind, array in self._arrays.items()}
        self._held: dict[RecordType, list[NDArray[np.uint8]]] = {kind: [] for kind in rooms}
        self.unknown = 0  # records of a type or size this version does not know
        self.drained = 0

    def drain(self) -> int:
        """Move everything that waits into the held batches; how many records."""
        total = 0
        while True:
            counts, unknown = self._ring.drain(self._targets)
            self.unknown += unknown
            moved = full = 0
            for number, count in counts.items():
                if count:
                    kind = RecordType(number)
                    filled = count * self._rooms[kind][0].itemsize
                    self._held[kind].append(self._arrays[kind][:filled].copy())
                    moved += count
                    full += filled == len(self._arrays[kind])
            total += moved
            if not full:
                self.drained += total
                return total

    def take(self, kind: RecordType) -> Records:
        """The records of one type held so far, in order; they are no longer held."""
        batches = self._held[kind]
        self._held[kind] = []
        records = batches[0] if len(batches) == 1 else np.concatenate(batches or [np.zeros(0, np.uint8)])
        return records.view(self._rooms[kind][0])
