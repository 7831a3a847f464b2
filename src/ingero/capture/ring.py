"""Empties the ring into arrays, one per record type.

The arrays are made once and reused; what is handed on is a copy of the filled part.
Nothing here looks at a single record.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ingero.model import layout
from ingero.model.layout import RecordType
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

# The ring for what is sent once and is large (probes/frames.bpf.h).
FRAMES_RING_BYTES = 8 << 20
FRAMES_ROOM: Room = {
    RecordType.REC_STACK: (layout.STACK, 256),
    RecordType.REC_CODE: (layout.CODE, 256),
    RecordType.REC_CODE_LONG: (layout.CODE_LONG, 32),
    RecordType.REC_WAIT_STACK: (layout.WAIT_STACK, 1024),
    RecordType.REC_NAME: (layout.NAME, 256),
}


class RingReader:
    """Collects records between windows."""

    def __init__(self, fd: int, size: int, rooms: Room = ROOM) -> None:
        self._ring = _shim.Ring(fd, size)
        self._rooms = rooms
        self._arrays = {kind: np.zeros(room, dtype) for kind, (dtype, room) in rooms.items()}
        self._targets = {
            int(kind): (array.view(np.uint8), array.dtype.itemsize) for kind, array in self._arrays.items()
        }
        self._held: dict[RecordType, list[Records]] = {kind: [] for kind in rooms}
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
                    self._held[kind].append(self._arrays[kind][:count].copy())
                    moved += count
                    full += count == len(self._arrays[kind])
            total += moved
            if not full:
                self.drained += total
                return total

    def take(self, kind: RecordType) -> Records:
        """The records of one type held so far, in order; they are no longer held."""
        batches = self._held[kind]
        self._held[kind] = []
        if not batches:
            return np.zeros(0, self._rooms[kind][0])
        return batches[0] if len(batches) == 1 else np.concatenate(batches)
