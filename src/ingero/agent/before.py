"""Calls that were already in flight when we came.

Their entry was not seen, but their frame is on the thread's stack: it is found by
following frame pointers in the process's memory, which is only read. A stack without
frame pointers ends the walk, and then nothing is said. Looked at again every window,
for as long as the call is still there; a thread that has made a traced call since is
known by other means.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from ingero.agent.targets import Targets
from ingero.attach.session import Session
from ingero.model.window import Records

MAX_FRAMES = 64
MAX_STACK_BYTES = 64 << 20
MAX_THREADS = 256  # of all processes together: this is for hung jobs, not a profiler

Range = tuple[int, int, int]  # first address, end, operation


class BeforeAttach:
    """Threads taken in while they ran, and the call each may be in."""

    def __init__(self, session: Session, targets: Targets) -> None:
        self._session = session
        self._targets = targets
        self._candidates: set[tuple[int, int]] = set()

    def begin(self, totals: Records) -> None:
        """The threads that ran before we came."""
        self._candidates = set(_keys(totals[:MAX_THREADS]))

    def find(self, totals: Records) -> Records:
        """Rows of threads found inside a traced function, with call_op and the time we know of."""
        if not self._candidates:
            return totals[:0]
        found = []
        still: set[tuple[int, int]] = set()
        for key, row in zip(_keys(totals), totals, strict=True):
            if key not in self._candidates or row["call_op"]:
                continue
            op = self._call_of(row)
            if op is not None:
                still.add(key)
                row = row.copy()
                row["call_op"] = op
                row["call_start_ns"] = row["h"]["start_ns"]  # at least since then
                found.append(row)
        self._candidates = still
        return np.array(found, totals.dtype) if found else totals[:0]

    def _call_of(self, row: np.void) -> int | None:
        """The outermost traced function on the thread's stack."""
        pid = int(row["h"]["pid"])
        ranges = self._ranges(pid)
        starts = [start for start, _, _ in ranges]
        op = None
        for address in _addresses(pid, int(row["user_ip"]), int(row["user_sp"]), int(row["user_bp"])):
            at = bisect_right(starts, address) - 1
            if at >= 0 and address < ranges[at][1]:
                op = ranges[at][2]
        return op

    def _ranges(self, pid: int) -> list[Range]:
        """Where the traced functions lie in this process."""
        target = self._targets.live.get(pid)
        ranges: list[Range] = []
        for file, library in (target.files if target else {}).items():
            attached = self._session.files.get(file)
            if attached is None:
                continue
            for function in attached.functions:
                for start, end, offset in library.segments:
                    address = start + function.offset - offset
                    if start <= address < end:
                        ranges.append((address, address + function.size, function.op))
        return sorted(ranges)


def _keys(totals: Records) -> list[tuple[int, int]]:
    return list(zip(totals["h"]["tid"].tolist(), totals["h"]["start_ns"].tolist(), strict=True))


def _addresses(pid: int, ip: int, sp: int, bp: int) -> Iterator[int]:
    """Return addresses, innermost first, as far as frame pointers lead."""
    yield ip
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    except OSError:
        return
    try:
        low = sp
        for _ in range(MAX_FRAMES):
            # The stack grows down: callers lie above, and not absurdly far.
            if not low <= bp < sp + MAX_STACK_BYTES or bp % 8:
                return
            frame = os.pread(memory, 16, bp)
            if len(frame) < 16:
                return
            low = bp + 16
            bp, address = struct.unpack("<QQ", frame)
            yield address
    except (OSError, OverflowError):
        return
    finally:
        os.close(memory)
