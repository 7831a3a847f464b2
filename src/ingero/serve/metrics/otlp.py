"""Sends metrics, and findings as log records and spans, in a thread of its own.

The trace only ever appends to bounded queues. While the receiver is away, requests wait
here: findings by the thousand, metrics for the last rounds; what does not fit is counted as
lost, oldest first. A request is tried again with growing pauses until it is taken or refused.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ingero.model.live import LiveView
from ingero.model.metrics import PROCESS, SeriesPoint, Snapshot
from ingero.serve.answers.finding_news import FindingNews, News, What
from ingero.serve.metrics import otlp_findings, otlp_metrics
from ingero.serve.metrics.otlp_destination import SIGNALS, Destination
from ingero.serve.metrics.otlp_metrics import Value, host_resource
from ingero.serve.metrics.otlp_sending import Outcome, Sender, sender

log = logging.getLogger(__name__)
PEOPLE = 4096  # processes whose labels are remembered for findings to come


@dataclass(frozen=True)
class SendingPace:
    """How often, how long and how much."""

    interval_s: float = 10.0
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    flush_s: float = 5.0  # at the end
    findings: int = 4096  # that wait, per signal
    rounds: int = 12  # of metrics that wait
    batch: int = 256


USUAL = SendingPace()


class OtlpExporter:
    """Starts with a trace, ends a little after it."""

    def __init__(
        self, destination: Destination, pace: SendingPace = USUAL, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._to, self._pace, self._environ = destination, pace, environ
        self._sender: Sender = sender(destination)
        self._news = FindingNews()
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Any]] = {signal: deque() for signal in SIGNALS}
        self.exports: Counter[tuple[str, str]] = Counter()
        self.lost: Counter[str] = Counter()
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._read: Callable[[], Snapshot] | None = None
        self._failures = 0
        self._again_at = 0.0
        self._started_ns = time.time_ns()
        self._labels: dict[int, tuple[str, ...]] = {}

    # --- the trace's side: nothing here waits ------------------------------------------

    def start(self, read: Callable[[], Snapshot]) -> None:
        self._read = read
        self._thread = threading.Thread(target=self._work, name="otlp", daemon=True)
        self._thread.start()

    def look(self, view: LiveView) -> None:
        self._keep(self._news.look(view.findings))

    def stop(self, view: LiveView | None) -> None:
        """Send what waits, for no longer than the pace allows."""
        if view is not None:
            self._keep(self._news.conclude(view.findings))
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(self._pace.flush_s + 1)
        waiting = {signal: len(items) for signal, items in self._waiting.items() if items}
        if waiting:
            self.lost.update(waiting)
            told = ", ".join(f"{count} {signal}" for signal, count in waiting.items())
            log.warning("OTLP: %s took no more; not sent: %s", self._to.url, told)

    def own(self) -> dict[str, list[SeriesPoint]]:
        with self._lock:
            exports = [SeriesPoint(key, count, self._started_ns) for key, count in self.exports.items()]
            lost = [SeriesPoint((signal,), self.lost[signal], self._started_ns) for signal in SIGNALS]
            waiting = [
                SeriesPoint((signal,), len(items), self._started_ns)
                for signal, items in self._waiting.items()
            ]
        return {"otlp.exports": exports, "otlp.lost": lost, "otlp.waiting": waiting}

    def warnings(self) -> tuple[str, ...]:
        return ()

    def _keep(self, news: list[News]) -> None:
        if not news:
            return
        with self._lock:
            self._append("logs", news, self._pace.findings)
            self._append("traces", [each for each in news if each.what is What.ENDED], self._pace.findings)
        self._wake.set()

    def _append(self, signal: str, items: list[Any], limit: int) -> None:
        waiting = self._waiting[signal]
        waiting.extend(items)
        while len(waiting) > limit:
            waiting.popleft()
            self.lost[signal] += 1

    # --- in the thread -------------------------------------------------------------------

    def _work(self) -> None:
        due = time.monotonic() + self._pace.interval_s
        while not self._stopping.is_set():
            self._wake.wait(max(0.0, self._next(due) - time.monotonic()))
            self._wake.clear()
            if time.monotonic() >= due:
                self._collect()
                due += max(self._pace.interval_s, 0.05)
            if time.monotonic() >= self._again_at:
                self._send_all(self._to.timeout_s)
        self._flush()
        self._sender.close()

    def _next(self, due: float) -> float:
        with self._lock:
            some = any(self._waiting.values())
        return min(due, self._again_at) if some else due

    def _flush(self) -> None:
        self._collect()
        until = time.monotonic() + self._pace.flush_s
        while (left := until - time.monotonic()) > 0 and not self._send_all(min(left, self._to.timeout_s)):
            time.sleep(min(max(0.05, self._again_at - time.monotonic()), self._pace.flush_s / 10))

    def _collect(self) -> None:
        assert self._read is not None
        try:
            snapshot = self._read()
            body = otlp_metrics.encode(snapshot, host_resource(snapshot.node, self._environ))
        except Exception:  # a mistake of ours: the findings still go out
            log.exception("OTLP: metrics could not be encoded")
            return
        if len(self._labels) > PEOPLE:
            self._labels.clear()
        for point in snapshot.points.get("process.info", ()):
            if point.labels[0].isdecimal():
                self._labels[int(point.labels[0])] = point.labels[: len(PROCESS)]
        with self._lock:
            self._append("metrics", [body], self._pace.rounds)

    def _send_all(self, timeout_s: float) -> bool:
        """Until nothing waits or the receiver will not have it; True: nothing waits."""
        for signal in SIGNALS:
            while batch := self._batch(signal):
                outcome = self._sender.send(signal, self._body(signal, batch), timeout_s)
                self._note(signal, batch, outcome)
                if outcome.again:
                    return False
        return True

    def _batch(self, signal: str) -> list[Any]:
        with self._lock:
            waiting = self._waiting[signal]
            return list(waiting)[: 1 if signal == "metrics" else self._pace.batch]

    def _body(self, signal: str, batch: list[Any]) -> bytes:
        if signal == "metrics":
            body: bytes = batch[0]
            return body
        assert self._read is not None
        snapshot = self._read()
        host: dict[str, Value] = host_resource(snapshot.node, self._environ)
        encode = otlp_findings.encode_logs if signal == "logs" else otlp_findings.encode_spans
        return encode(batch, host, self._labels)

    def _note(self, signal: str, batch: list[Any], outcome: Outcome) -> None:
        with self._lock:
            name = "accepted" if outcome.accepted else "failed" if outcome.again else "refused"
            self.exports[signal, name] += 1
            if not outcome.again:
                self._leave(signal, batch)
                if not outcome.accepted:
                    self.lost[signal] += len(batch)
        self._pause(outcome)

    def _leave(self, signal: str, batch: list[Any]) -> None:
        """They may have been pushed out meanwhile."""
        waiting, gone = self._waiting[signal], set(map(id, batch))
        while waiting and id(waiting[0]) in gone:
            waiting.popleft()

    def _pause(self, outcome: Outcome) -> None:
        if not outcome.again:
            if self._failures:
                log.warning("OTLP: %s takes data again", self._to.url)
            elif not outcome.accepted:
                log.warning("OTLP: %s refused a request: %s", self._to.url, outcome.why)
            self._failures, self._again_at = 0, 0.0
            return
        if not self._failures:
            log.warning("OTLP: %s does not take data: %s; trying again", self._to.url, outcome.why)
        pause_s = min(self._pace.first_pause_s * 2 ** min(self._failures, 16), self._pace.longest_pause_s)
        self._failures += 1
        # Not all agents of a cluster in the same moment.
        self._again_at = time.monotonic() + (outcome.after_s or pause_s * random.uniform(0.8, 1.2))
