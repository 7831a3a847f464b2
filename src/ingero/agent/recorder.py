"""Stores windows in a thread of its own, so that storing never holds up draining.

A hundred thousand rows take SQLite half a second, in which the ring would overrun.
When the disk cannot keep up for long, detail is given up and counted, never the
aggregates.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ingero.agent.diagnosis import LiveDiagnosis
from ingero.model.window import Window
from ingero.store.writer import Writer

MAX_WAITING_BYTES = 128 << 20
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
        return self._writer.dropped

    def note(self, absent: Mapping[str, str], ns_per_hit: float, budget: float | None) -> None:
        self._writer.note(absent, ns_per_hit, budget)

    def size_bytes(self) -> int:
        return self._writer.size_bytes()

    def write(self, window: Window) -> None:
        """Hand a window over; what went wrong with an earlier one is raised here."""
        if self._failure is not None:
            raise self._failure
        size = _detail_bytes(window)
        with self._lock:
            full = self._waiting_bytes + size > MAX_WAITING_BYTES
            self._waiting_bytes += 0 if full else size
        if full:
            _shed(window)
        self._queue.put(window)

    def _work(self) -> None:
        while (window := self._queue.get()) is not None:
            try:
                if self._failure is None:
                    self._writer.write(window)
                    if self._queue.qsize() < BEHIND:  # what waits is stored first
                        self.diagnosis.consider(window.end_ns)
            except BaseException as error:
                self._failure = error
            with self._lock:
                self._waiting_bytes -= _detail_bytes(window)

    def close(self) -> None:
        """Store what waits, then end the recording. Once is enough, more often is fine."""
        if self._thread is None:
            return
        self._queue.put(None)
        self._thread.join()
        self._thread = None
        if self._failure is None:
            self.diagnosis.conclude()
        self._writer.close()
        if self._failure is not None:
            raise self._failure


def _detail_bytes(window: Window) -> int:
    return sum(getattr(window, name).nbytes for name in DETAIL)


def _shed(window: Window) -> None:
    for name in DETAIL:
        rows = getattr(window, name)
        window.losses[LOSS] = window.losses.get(LOSS, 0) + len(rows)
        setattr(window, name, rows[:0])
