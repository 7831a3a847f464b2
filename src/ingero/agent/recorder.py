"""Stores windows in a thread of its own, so that storing never holds up draining.

A hundred thousand rows take SQLite half a second, in which the ring would overrun.
When the disk cannot keep up for long, detail is given up and counted, never the
aggregates; when it does not answer at all, windows are. Only that thread touches the file system: one that
does not answer holds up the recording and nothing else.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path

from ingero.agent.diagnosis import LiveDiagnosis
from ingero.errors import StoreError
from ingero.model.stack import ResolvedStack
from ingero.model.window import Window
from ingero.store.writer import CARRIED_STACKS, Writer, rows_of

MAX_WAITING_BYTES = 128 << 20
MAX_WAITING = 300  # windows: minutes
STUCK_S = 30.0  # at the end: nothing was stored for so long
BEHIND = 3  # windows that wait
DETAIL = ("calls", "waits", "blocks")
LOSS = "store_backlog"


class Recorder:
    """A Writer behind a queue."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.diagnosis = LiveDiagnosis(writer)
        self._queue: queue.SimpleQueue[Window | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._size_bytes = writer.size_bytes()
        self._untold: Counter[str] = Counter()  # losses of windows that were not taken
        self._dropped: Counter[str] = Counter()
        self._stacks: deque[ResolvedStack] = deque(maxlen=CARRIED_STACKS)  # of those windows
        self._steps = 0  # how far the thread has come
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = threading.Thread(
            target=self._work, name="recorder", daemon=True
        )
        self._thread.start()

    @property
    def path(self) -> Path:
        return self._writer.path

    @property
    def status(self) -> str:
        return self._writer.status

    @property
    def dropped(self) -> Counter[str]:
        return self._writer.dropped + self._dropped

    def note(self, absent: Mapping[str, str], ns_per_hit: float, budget: float | None) -> None:
        self._writer.note(absent, ns_per_hit, budget)

    def size_bytes(self) -> int:
        """As of the window that was stored last."""
        return self._size_bytes

    def write(self, window: Window) -> None:
        """Hand a window over; what went wrong with an earlier one is raised here."""
        if self._failure is not None:
            raise self._failure
        if self._queue.qsize() >= MAX_WAITING:
            self._leave_out(window)
            return
        for reason, count in self._untold.items():
            window.losses[reason] = window.losses.get(reason, 0) + count
        self._untold.clear()
        window.stacks = [*self._stacks, *window.stacks]  # later windows cite them, and they are told once
        self._stacks.clear()
        size = _detail_bytes(window)
        with self._lock:
            full = self._waiting_bytes + size > MAX_WAITING_BYTES
            self._waiting_bytes += 0 if full else size
        if full:
            _shed(window)
        self._queue.put(window)

    def _leave_out(self, window: Window) -> None:
        """Told by the next window that is taken, with the losses this one carried."""
        rows = rows_of(window)
        self._dropped[LOSS] += rows
        self._untold.update(window.losses)
        self._untold[LOSS] += rows
        self._stacks.extend(window.stacks)

    def _work(self) -> None:
        while (window := self._queue.get()) is not None:
            try:
                if self._failure is None:
                    self._writer.write(window)
                    if self._queue.qsize() < BEHIND:  # what waits is stored first
                        self.diagnosis.consider(window.end_ns)
            except BaseException as error:  # raised where the next window is handed over, and at the end
                self._failure = error
            self._size_bytes = self._writer.size_bytes()
            with self._lock:
                self._waiting_bytes -= _detail_bytes(window)
            self._steps += 1

    def close(self) -> None:
        """Store what waits, then end the recording. Once is enough, more often is fine."""
        if self._thread is None:
            return
        self._queue.put(None)
        stuck = not self._ended(self._thread)
        self._thread = None
        if stuck:
            raise StoreError(
                f"cannot end the recording {self.path}: its file system does not answer",
                hint="What was stored by then can be read once it does.",
            )
        if self._failure is None:
            self.diagnosis.conclude()
        self._writer.close()
        self._size_bytes = self._writer.size_bytes()
        if self._failure is not None:
            raise self._failure

    def _ended(self, thread: threading.Thread) -> bool:
        """False: it has not come any further for a while. Storing what waits may take longer than that."""
        steps = -1
        while thread.is_alive() and steps != self._steps:
            steps = self._steps
            thread.join(STUCK_S)
        return not thread.is_alive()


def _detail_bytes(window: Window) -> int:
    return sum(getattr(window, name).nbytes for name in DETAIL)


def _shed(window: Window) -> None:
    for name in DETAIL:
        rows = getattr(window, name)
        window.losses[LOSS] = window.losses.get(LOSS, 0) + len(rows)
        setattr(window, name, rows[:0])
