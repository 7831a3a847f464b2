"""One second of the kernel side, read together into a Window."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

from ingero.agent.in_flight_at_attach import BeforeAttach, account
from ingero.attach.kernel import KernelSide
from ingero.capture import counters
from ingero.capture.counters import IoBook, LossBook
from ingero.capture.operations import OperationBook, with_uncounted
from ingero.capture.ring import FRAMES_RING_BYTES, FRAMES_ROOM, RingReader
from ingero.capture.threads import ThreadBook
from ingero.discover.host import SystemSampler
from ingero.model import layout
from ingero.model.layout import HeaderFlag, RecordType
from ingero.model.window import IO, Records, Window, empty

LONG_NS = 1_000_000_000
UNKNOWN_RECORD = "record_unknown"


class WindowReader:
    """Turns the kernel side's counters and records into windows."""

    def __init__(self, kernel: KernelSide, before: BeforeAttach, readers_cpu_ns: Callable[[], int]) -> None:
        self._readers_cpu_ns = readers_cpu_ns
        self._before = before
        self._kernel = kernel
        self.ring = RingReader(kernel.maps["ring"], kernel.settings.ring_bytes)
        self.frames = RingReader(kernel.maps["frames"], FRAMES_RING_BYTES, FRAMES_ROOM)
        self.operations = OperationBook(kernel.maps["op_stats"])
        self._threads = ThreadBook()
        self._culprits = counters.culprits(kernel.maps["culprits"])
        self._wakers = counters.wakers(kernel.maps["wakers"])
        # Without the block probes there is no such map.
        self._io = IoBook(kernel.maps["io_stats"], os.getpid()) if "io_stats" in kernel.maps else None
        self._losses = LossBook(kernel.maps["losses"], kernel.cpus)
        self._system = SystemSampler()
        self._start_ns = time.monotonic_ns()
        self._cpu_ns = time.process_time_ns() + readers_cpu_ns()
        self._unknown = 0
        self.totals = np.zeros(0, layout.THREAD_TOTALS)  # of every thread, when the last window ended

    def drain(self) -> None:
        """Names last: those of the calls that were drained must be among them."""
        self.ring.drain()
        self.frames.drain()

    def read(self, last: bool = False) -> Window:
        """Everything since the last call; of the last window every call in flight is a part."""
        start_ns = self._start_ns
        # The window ends where the threads are read: their time must fill it. The rest follows.
        end_ns = time.monotonic_ns()
        totals = self.totals = self._kernel.read_threads()
        self.drain()
        dead = self.ring.take(RecordType.REC_THREAD)
        calls = self.ring.take(RecordType.REC_CALL)
        operations = with_uncounted(self.operations.read(start_ns), calls)
        before, died = self._before.find(totals), self._before.died(dead)
        threads = self._threads.update(_in_order(totals, dead), start_ns)
        account(threads, np.concatenate([before, died]), start_ns)
        window = Window(
            start_ns,
            end_ns,
            calls=calls,
            waits=self.ring.take(RecordType.REC_WAIT),
            blocks=self.ring.take(RecordType.REC_BLOCK),
            tcp=self.ring.take(RecordType.REC_TCP),
            ooms=self.ring.take(RecordType.REC_OOM),
            xids=self.ring.take(RecordType.REC_XID),
            operations=operations,
            threads=threads,
            culprits=self._culprits.read(),
            wakers=self._wakers.read(),
            io=self._io.read() if self._io else empty(IO),
            in_flight=np.concatenate(
                [_long_ones(totals, before, 0 if last else LONG_NS), died, _killed(dead)]
            ),
            losses=self._take_losses(),
            system=self._system.sample(),
            hits=int(operations["count"].sum()),
        )
        _join_waiters(window)
        self._start_ns = end_ns
        cpu_ns = time.process_time_ns() + self._readers_cpu_ns()
        window.agent_cpu_ns, self._cpu_ns = cpu_ns - self._cpu_ns, cpu_ns
        return window

    def finish(self, window: Window) -> None:
        """The last window also tells the polls that are still open."""
        window.threads = np.concatenate([window.threads, self._threads.finish()])

    def _take_losses(self) -> dict[str, int]:
        losses = self._losses.read()
        unknown = self.ring.unknown + self.frames.unknown - self._unknown
        if unknown:
            losses[UNKNOWN_RECORD] = unknown
            self._unknown += unknown
        return losses


def _in_order(totals: Records, dead: Records) -> Records:
    """A thread's last word comes after its earlier ones, and is not followed by them."""
    if not len(dead):
        return totals
    gone = set(zip(dead["h"]["tid"].tolist(), dead["h"]["start_ns"].tolist(), strict=True))
    keys = zip(totals["h"]["tid"].tolist(), totals["h"]["start_ns"].tolist(), strict=True)
    alive = np.array([key not in gone for key in keys], bool)
    return np.concatenate([totals[alive], dead]) if len(totals) else dead


def _killed(dead: Records) -> Records:
    """Threads that ended inside a call they had long been in."""
    started = dead["call_start_ns"]
    killed: Records = dead[(started > 0) & (dead["now_ns"] - started >= LONG_NS)]
    return killed


def _long_ones(totals: Records, before: Records, least_ns: int) -> Records:
    """Calls in flight, and waits of a second or longer; `before`: calls that began before we came."""
    if not len(totals):
        return np.zeros(0, layout.THREAD_TOTALS)
    started = totals["call_start_ns"]
    in_call = (started > 0) & (totals["now_ns"] - started >= least_ns)
    feeder = (totals["h"]["flags"] & HeaderFlag.H_FEEDER) > 0
    waiting = (totals["before_attach"] > 0) & (totals["open_ns"] >= LONG_NS)
    chosen: Records = totals[in_call | waiting | (feeder & (totals["open_ns"] >= LONG_NS))]
    known = set(before["h"]["tid"].tolist())
    others = chosen[[tid not in known for tid in chosen["h"]["tid"].tolist()]]
    return np.concatenate([before, others])


def _join_waiters(window: Window) -> None:
    """Whose wait a block request's completion ended."""
    waits = window.waits[window.waits["dev"] > 0]
    for wait in waits:
        match = (window.blocks["dev"] == wait["dev"]) & (window.blocks["sector"] == wait["sector"])
        for index in np.flatnonzero(match):
            window.blocks[index]["waiter_pid"] = wait["h"]["pid"]
            window.blocks[index]["waiter_tid"] = wait["h"]["tid"]
