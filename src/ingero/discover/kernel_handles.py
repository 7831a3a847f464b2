"""Names of kernels as the driver keeps them: behind the handles it gave out.

For launches of a process that asked for its handles before it was traced. A handle is an
address, and near what it points to the driver has a pointer to the kernel's name (8 bytes
into it with driver 580). Where is not documented, so it is found out and checked in every
process: one place, and only one, must hold a name for every one of several handles, and
no name twice. Until then, and where that fails, nothing is said.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence

from ingero.discover.process_memory import NotThereError, ProcessMemory, TooMuchError

SPAN_BYTES = 256  # looked at behind a handle
MAX_NAME_BYTES = 4096
FEWEST = 3  # handles that must agree
MAX_TRIES = 5  # for one handle
MAX_AT_ONCE = 256
_NAME = re.compile(rb"([A-Za-z_$][\w$.]{3,})\0")


class HandleNames:
    """What handles of processes are called; asked for those nobody has named."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}  # where a process's driver keeps names
        self._tries: dict[tuple[int, int], int] = {}

    def names(self, pid: int, handles: Sequence[int]) -> dict[int, bytes]:
        asked = [each for each in handles if self._tries.get((pid, each), 0) < MAX_TRIES][:MAX_AT_ONCE]
        for each in asked:
            self._tries[pid, each] = self._tries.get((pid, each), 0) + 1
        if not asked:
            return {}
        try:
            with ProcessMemory(pid) as memory:
                return self._read(memory, pid, asked)
        except (OSError, TooMuchError):
            return {}

    def forget(self, pids: Iterable[int]) -> None:
        gone = set(pids)
        for pid in gone:
            self._places.pop(pid, None)
        self._tries = {key: count for key, count in self._tries.items() if key[0] not in gone}

    def _read(self, memory: ProcessMemory, pid: int, handles: list[int]) -> dict[int, bytes]:
        place = self._places.get(pid)
        places = range(0, SPAN_BYTES, 8) if place is None else (place,)
        found = {at: _names_at(memory, handles, at) for at in places}
        if place is None:
            agreed = [at for at, names in found.items() if _agree(names, handles)]
            if len(agreed) != 1:
                return {}
            place = self._places[pid] = agreed[0]
        return found[place]


def _agree(names: dict[int, bytes], handles: list[int]) -> bool:
    return len(handles) >= FEWEST and len(names) == len(handles) == len(set(names.values()))


def _names_at(memory: ProcessMemory, handles: list[int], at: int) -> dict[int, bytes]:
    found = {}
    for handle in handles:
        try:
            (pointer,) = struct.unpack("<Q", memory.read(handle + at, 8))
            match = _NAME.match(memory.read_up_to(pointer, MAX_NAME_BYTES))
        except NotThereError:
            continue
        if match:
            found[handle] = match[1]
    return found
