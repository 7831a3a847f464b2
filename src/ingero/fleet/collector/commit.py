"""Batches of many nodes into the store, together: acknowledged when they are in it, not before.

The store wants few large inserts, nodes send many small requests. What arrives while an insert is
under way, and for a moment after, goes into the next one. A batch that was stored already is
acknowledged without being stored again; that is only a saving: the store keeps one copy by itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from ingero.errors import StoreError
from ingero.fleet.collector.tables import Rows, rows_of
from ingero.model.fleet import Health

log = logging.getLogger(__name__)
LINGER_S = (
    0.25  # from one insert to the next: the store merges what comes in, and can take some parts a second
)
WAITING = 4096  # batches; beyond them nodes are told to come back
REMEMBERED = 200_000  # nodes


class Insert(Protocol):
    def insert(self, rows: Rows) -> None: ...


class Busy(Exception):  # noqa: N818 - no error of ours
    """Too much waits already."""


class Seen:
    """Which batches of each node are in the store: the last 64 numbers of its last run."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, str], tuple[str, int, int]] = OrderedDict()

    def has(self, signal: str, batch: Health) -> bool:
        run, high, bits = self._known.get((batch.cluster, batch.node, signal), ("", 0, 0))
        return run == batch.run and 0 <= high - batch.number < 64 and bool(bits >> (high - batch.number) & 1)

    def add(self, signal: str, batch: Health) -> None:
        key = batch.cluster, batch.node, signal
        run, high, bits = self._known.pop(key, ("", 0, 0))
        if run != batch.run:
            high, bits = batch.number, 1
        elif batch.number > high:
            ahead = batch.number - high
            high, bits = batch.number, (bits << ahead | 1) & ((1 << 64) - 1) if ahead < 64 else 1
        elif high - batch.number < 64:
            bits |= 1 << (high - batch.number)
        self._known[key] = batch.run, high, bits
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


class _Waiting(NamedTuple):
    signal: str
    batches: list[Health]
    future: Future[int]


class Counts:
    """Since the start."""

    def __init__(self) -> None:
        self.batches = self.again = self.rows = self.inserts = self.failures = 0
        self.insert_s = 0.0


class Committer:
    """The thread that writes."""

    def __init__(
        self, store: Insert, linger_s: float = LINGER_S, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._store, self._linger_s, self._now_ns = store, linger_s, now_ns
        self._seen = Seen()
        self._lock = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._stopping = False
        self.counts = Counts()
        self._thread = threading.Thread(target=self._work, name="commit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what waits."""
        with self._lock:
            self._stopping = True
            self._lock.notify()
        if self._thread.is_alive():
            self._thread.join(30)

    @property
    def waiting(self) -> int:
        return sum(len(each.batches) for each in self._waiting)

    def submit(self, signal: str, batches: list[Health]) -> Future[int]:
        """Done, with how many were new, when all of them are in the store."""
        future: Future[int] = Future()
        # Whoever stops waiting, as when a request's time is over, cannot take it back: it will be stored.
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._stopping or self.waiting + len(batches) > WAITING:
                raise Busy
            self._waiting.append(_Waiting(signal, batches, future))
            self._lock.notify()
        return future

    def _work(self) -> None:
        last = -self._linger_s
        while True:
            with self._lock:
                while not self._waiting and not self._stopping:
                    self._lock.wait()
                if not self._waiting:
                    return
                pause_s = last + self._linger_s - time.monotonic()
                if pause_s > 0:
                    self._lock.wait_for(lambda: self._stopping, pause_s)
                taken, self._waiting = self._waiting, []
            self.commit(taken)
            last = time.monotonic()

    def commit(self, taken: list[_Waiting]) -> None:
        """One insert for each table; where it fails, in halves: what one request has wrong fails it alone."""
        waiting, failed = [taken], 0
        most = len(taken).bit_length() + 1  # halvings until the culprit is alone, wherever it stands
        error: Exception | None = None
        while waiting:
            part = waiting.pop()
            if error is not None and failed > most:  # it is not the data
                _fail(part, error)
                continue
            again = self._stored(part)
            failed = failed + 1 if again else 0
            if again is None:
                continue
            if error is None:
                self._note(again)
            error = again
            if len(part) == 1:
                _fail(part, again)
            else:
                half = len(part) // 2
                waiting += [part[half:], part[:half]]

    def _stored(self, taken: list[_Waiting]) -> Exception | None:
        """Together; whatever it was that failed, nobody may believe it is stored."""
        rows: Rows = {}
        fresh: list[tuple[str, Health]] = []
        again = 0
        began = time.perf_counter()
        try:
            for each in taken:
                new = [batch for batch in each.batches if not self._seen.has(each.signal, batch)]
                again += len(each.batches) - len(new)
                fresh += [(each.signal, batch) for batch in new]
                rows_of(new, each.signal, self._now_ns(), rows)
            self._store.insert(rows)
        except Exception as error:  # noted by the caller, who tries again and then tells the senders
            return error
        self.counts.insert_s += time.perf_counter() - began
        self.counts.inserts += 1
        self.counts.again += again
        self.counts.batches += len(fresh)
        self.counts.rows += sum(map(len, rows.values()))
        for signal, batch in fresh:
            self._seen.add(signal, batch)
        for each in taken:
            each.future.set_result(len(each.batches))
        return None

    def _note(self, error: Exception) -> None:
        self.counts.failures += 1
        if isinstance(error, StoreError):
            log.warning("%s", error)
        else:
            log.error("the store failed", exc_info=error)


def _fail(taken: list[_Waiting], error: Exception) -> None:
    for each in taken:
        each.future.set_exception(error)
