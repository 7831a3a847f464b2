"""Latencies of the last requests, summed up now and then."""

from __future__ import annotations

import threading
import time
from collections import deque

from runbook import Run


class Statistics:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.batches: deque[int] = deque(maxlen=2000)
        self._seconds: deque[float] = deque(maxlen=4000)

    def answered(self, seconds: float) -> None:
        self._seconds.append(seconds)

    def report(self, run: Run) -> None:
        while True:
            time.sleep(run["report_every_s"])
            if run.get("push_under_lock_s"):
                with self.lock:
                    self._push(run["push_under_lock_s"])
            if run.get("histogram_rounds"):
                self._histogram(run["histogram_rounds"])

    def _push(self, seconds: float) -> None:
        """To the monitoring, which takes its time."""
        sum(self.batches)
        time.sleep(seconds)

    def _histogram(self, rounds: int) -> list[int]:
        buckets = [0] * 50
        for number in range(rounds):
            for exponent in range(50):
                if number & 1023 < exponent * 20:
                    buckets[exponent] += 1
        return buckets
