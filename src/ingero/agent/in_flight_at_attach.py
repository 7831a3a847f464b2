"""Calls that were already in flight when we came.

Their entry was not seen, but their frame is on the thread's stack: it is found by
following frame pointers in the process's memory, which is only read. A stack without
frame pointers ends the walk, and then nothing is said. "When we came" is when probes
were put on a library the process maps, which may be long after the trace began. Looked
at again every window, for as long as the call is still there; a thread that has made a
traced call is known by other means.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from ingero.agent.readers import Asking, UnreadError
from ingero.agent.reading import Reading
from ingero.agent.targets import Targets
from ingero.attach import probes
from ingero.attach.session import File, Session
from ingero.model.layout import Bucket, HeaderFlag
from ingero.model.window import InFlightFlag, Records

MAX_THREADS = 256  # of all processes together: this is for hung jobs, not a profiler
SYNC_OPS = frozenset(each.number for each in probes.operations() if each.kind == "sync")
Range = tuple[int, int, int]  # first address, end, operation
Key = tuple[int, int]  # of a thread: its number, and since when it is accounted


class BeforeAttach:
    """Threads taken in while they ran, and the call each may be in."""

    def __init__(self, session: Session, targets: Targets, readers: Asking) -> None:
        self._readers = readers
        self._session = session
        self._targets = targets
        self._candidates: dict[Key, int] = {}  # when each was in its call already, at the latest
        self._found: dict[Key, np.void] = {}  # as last seen
        self._looked: dict[int, frozenset[File]] = {}  # files with probes, by process

    def begin(self, totals: Records) -> None:
        """The threads that ran before we came."""
        self._news()
        for key in _keys(totals[:MAX_THREADS]):
            self._candidates[key] = key[1]

    def find(self, totals: Records) -> Records:
        """Rows of threads found inside a traced function, with call_op and the time we know of."""
        self._take_in(totals)
        if not self._candidates:
            return totals[:0]
        self._found = {}
        for key, row in zip(_keys(totals), totals, strict=True):
            if key not in self._candidates or row["call_op"] or row["h"]["flags"] & HeaderFlag.H_FEEDER:
                continue
            op = self._call_of(row)
            if op is not None:
                self._found[key] = self._told(row, op, self._candidates[key])
        self._candidates = {key: self._candidates[key] for key in self._found}
        return np.array(list(self._found.values()), totals.dtype) if self._found else totals[:0]

    def died(self, dead: Records) -> Records:
        """Of threads that ended: those that did so in the call they were found in, as rows like these."""
        rows = []
        for key, row in zip(_keys(dead), dead, strict=True):
            last = self._found.pop(key, None)
            if last is not None and not row["call_op"]:
                told = last.copy()
                told["now_ns"], told["dead"] = row["now_ns"], 1
                rows.append(told)
                self._candidates.pop(key, None)
        return np.array(rows, dead.dtype) if rows else dead[:0]

    def _take_in(self, totals: Records) -> None:
        """Threads of processes a library of which got its probes since the last look."""
        news = self._news()
        if not news:
            return
        for key, row in zip(_keys(totals), totals, strict=True):
            if int(row["h"]["pid"]) in news and len(self._candidates) < MAX_THREADS:
                self._candidates.setdefault(key, int(row["now_ns"]))

    def _news(self) -> set[int]:
        live = self._targets.live
        now = {
            pid: frozenset(file for file in each.files if file in self._session.files)
            for pid, each in live.items()
        }
        news = {pid for pid, files in now.items() if files - self._looked.get(pid, frozenset())}
        self._looked = now
        return news

    def _told(self, row: np.void, op: int, since_ns: int) -> np.void:
        told: np.void = row.copy()
        told["call_op"] = op
        told["call_start_ns"] = since_ns  # at least since then
        target = self._targets.live.get(int(row["h"]["pid"]))
        with_nccl = any(each.kind == "nccl" for each in target.files.values()) if target else False
        told["before_attach"] |= InFlightFlag.CALL_BEFORE | (InFlightFlag.WITH_NCCL if with_nccl else 0)
        return told

    def _call_of(self, row: np.void) -> int | None:
        """The outermost traced function on the thread's stack."""
        pid = int(row["h"]["pid"])
        ranges = self._ranges(pid)
        starts = [start for start, _, _ in ranges]
        op = None
        for address in self._addresses(pid, int(row["user_ip"]), int(row["user_sp"]), int(row["user_bp"])):
            at = bisect_right(starts, address) - 1
            if at >= 0 and address < ranges[at][1]:
                op = ranges[at][2]
        return op

    def _addresses(self, pid: int, ip: int, sp: int, bp: int) -> list[int]:
        try:
            return [ip, *self._readers.ask(Reading.return_addresses, pid, sp, bp)]
        except UnreadError:
            return [ip]

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


def account(threads: Records, found: Records, window_ns: int) -> None:
    """A thread in a call that waits for the GPU waits for it, and feeds one, though nobody saw it begin.

    `threads` are this window's rows, which know nothing of the call.
    """
    ops = dict(zip(found["h"]["tid"].tolist(), found["call_op"].tolist(), strict=True))
    for row in threads:
        op = ops.get(int(row["tid"]))
        if op is None or row["window_ns"] != window_ns:
            continue
        row["feeder"] = True
        if op in SYNC_OPS:
            on_core = int(row["ns"][Bucket.HOST_CPU]) + int(row["ns"][Bucket.CUDA_CPU])
            ready = row["ns"][Bucket.RUNQUEUE]
            waited = row["ns"].sum() - ready
            row["ns"], row["gap"] = 0, 0
            row["ns"][Bucket.RUNQUEUE], row["ns"][Bucket.GPU_WAIT] = ready, waited
            row["spun_ns"] += on_core


def _keys(totals: Records) -> list[Key]:
    return list(zip(totals["h"]["tid"].tolist(), totals["h"]["start_ns"].tolist(), strict=True))
