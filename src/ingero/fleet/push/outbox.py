"""Sends batches in order, in a thread of its own: what is not taken waits on disk and is sent again.

Whoever hands batches in never waits: a short queue lies between, and what does not fit there is
counted as dropped. A batch counts as sent when the receiver said so; an answer that was cut off
means that it is sent again, under the same name.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ingero.fleet.push.spool import Batch, Spool

log = logging.getLogger(__name__)
WAITING = 32  # batches between the trace and the thread


class Result(Protocol):
    """What became of a request; serve.metrics.otlp_sending.Outcome is one."""

    @property
    def accepted(self) -> bool: ...
    @property
    def again(self) -> bool: ...
    @property
    def after_s(self) -> float | None: ...
    @property
    def why(self) -> str: ...


Send = Callable[[str, bytes, float], Result]


@dataclass(frozen=True)
class Pace:
    """How long things may take."""

    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    timeout_s: float = 10.0
    flush_s: float = 5.0  # at the end


class Outbox:
    """The thread, and its counts."""

    def __init__(self, url: str, spool: Spool, send: Send, pace: Pace | None = None) -> None:
        self._url, self._spool, self._send = url, spool, send
        self._pace = pace or Pace()
        self._queue: queue.Queue[Batch | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._work, name="fleet", daemon=True)
        self._stopping = threading.Event()
        self._failures = 0
        self._again_at = 0.0
        self._unqueued = 0
        self.sent = self.refused = 0

    @property
    def dropped(self) -> int:
        """Batches that will never arrive: pushed out, refused, or never taken over."""
        return self._spool.dropped + self.refused + self._unqueued

    @property
    def waiting(self) -> int:
        return len(self._spool) + self._queue.qsize()

    @property
    def waiting_bytes(self) -> int:
        return self._spool.bytes

    def start(self) -> None:
        self._thread.start()

    def put(self, batch: Batch) -> None:
        """Never waits."""
        try:
            self._queue.put_nowait(batch)
        except queue.Full:
            self._unqueued += 1

    def stop(self) -> None:
        """Send what can be sent within the pace; the rest stays on disk for the next agent."""
        self._stopping.set()
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            log.warning("fleet: the last round does not fit")
        self._thread.join(self._pace.flush_s + self._pace.timeout_s + 1)
        if left := len(self._spool):
            log.warning(
                "fleet: %s has not taken %d batches; they wait in %s", self._url, left, self._spool.folder
            )

    # --- in the thread -------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._take(self._pause_s())
            self._send_waiting(None)
        until = time.monotonic() + self._pace.flush_s
        while self._take(0):
            pass
        self._again_at = 0.0
        while len(self._spool) and time.monotonic() < until:
            self._send_waiting(until)
            time.sleep(max(0.0, min(self._again_at, until) - time.monotonic()))

    def _pause_s(self) -> float | None:
        """None: until something comes."""
        return max(0.0, self._again_at - time.monotonic()) if len(self._spool) else None

    def _take(self, timeout_s: float | None) -> bool:
        try:
            batch = self._queue.get(timeout=timeout_s) if timeout_s != 0 else self._queue.get_nowait()
        except queue.Empty:
            return False
        if batch is None:
            return False
        # First to disk: it is there whatever happens to the request or to us.
        self._spool.put(batch)
        return True

    def _send_waiting(self, until: float | None) -> None:
        while time.monotonic() >= self._again_at and (batch := self._spool.oldest()):
            if until is not None and time.monotonic() >= until:
                return
            result = self._send(batch.signal, batch.body, self._pace.timeout_s)
            if result.again:
                self._wait(result)
                return
            self._spool.done(batch)
            if result.accepted:
                self.sent += 1
                if self._failures:
                    log.warning("fleet: %s takes data again", self._url)
            else:
                self.refused += 1
                log.warning("fleet: %s refused a batch: %s", self._url, result.why)
            self._failures, self._again_at = 0, 0.0
            if until is None and not self._queue.empty():
                self._take(0)

    def _wait(self, result: Result) -> None:
        if not self._failures:
            log.warning("fleet: %s does not take data: %s; trying again", self._url, result.why)
        pause_s = min(self._pace.first_pause_s * 2 ** min(self._failures, 16), self._pace.longest_pause_s)
        self._failures += 1
        # Not all agents of a cluster in the same moment.
        self._again_at = time.monotonic() + (result.after_s or pause_s) * random.uniform(0.8, 1.2)
