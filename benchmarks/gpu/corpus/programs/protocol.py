"""How a job of the set `unmet` speaks with play.py: PROGRAM SETTINGS.json BOOK.

Reads lines: `go` lets it build and warm up, then it says `ready PID`; `bite` begins its
troubles; the end of its input ends it. The book holds when each step ended and when it
was bitten.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
from array import array
from pathlib import Path
from typing import Any

WARM_S = 1.2


class Play:
    """`amount` is 0 until the job has been bitten; `beat` ends a step, and says whether another follows."""

    def __init__(self) -> None:
        os.read(0, 3)  # go, and the end of its line
        self.settings: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
        self.work: str = self.settings["work"]
        self._troubles: dict[str, float] = dict(self.settings["troubles"])
        self._shared: dict[str, Any] = {}
        self._times = array("q")
        self._told, self._ended = threading.Event(), threading.Event()
        self._bitten_at = self._warm_until = 0
        self._ready = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while said := os.read(0, 100):
            if b"bite" in said:
                self._told.set()
        self._ended.set()

    def planned(self, name: str) -> float:
        return self._troubles.get(name, 0.0)

    def amount(self, name: str) -> float:
        return self._troubles.get(name, 0.0) if self._bitten_at else 0.0

    def shared(self, name: str) -> Any:
        """The amount as other processes see it."""
        return self._shared.setdefault(name, multiprocessing.Value("d", 0.0))

    def beat(self) -> bool:
        now = time.monotonic_ns()
        self._times.append(now)
        self._warm_until = self._warm_until or now + int(WARM_S * 1e9)
        if not self._ready and now > self._warm_until:
            self._ready = True
            print(f"ready {os.getpid()}", flush=True)
        if self._told.is_set() and not self._bitten_at:
            self._bitten_at = now
            for name, value in self._shared.items():
                value.value = self._troubles.get(name, 0.0)
        if self._ended.is_set():
            book = {"bitten": self._bitten_at, "ends": self._times.tolist()}
            Path(sys.argv[2]).write_text(json.dumps(book))
            return False
        return True
