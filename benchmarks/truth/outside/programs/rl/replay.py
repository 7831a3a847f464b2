"""The last experiences."""

from __future__ import annotations

import random
import threading
import time
from typing import Any


class Replay:
    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()
        self._kept: list[Any] = [(0.0,)] * size
        self._at = 0

    def add(self, state: Any, tidy_s: float) -> None:
        with self._lock:
            self._kept[self._at % len(self._kept)] = state
            self._at += 1
            if tidy_s:
                self._spill(tidy_s)

    def _spill(self, seconds: float) -> None:
        """What is old goes to slow memory."""
        time.sleep(seconds)

    def sample(self, count: int) -> list[Any]:
        with self._lock:
            return random.choices(self._kept, k=count)
