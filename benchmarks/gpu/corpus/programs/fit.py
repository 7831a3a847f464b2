"""A training or inference job whose troubles begin when it is told so.

    fit.py SETTINGS.json BOOK

Settings: work (see work.py), log_every, troubles (name and amount, see troubles.py), input
(none, or how a DataLoader makes its batches), requests (ms between two of them). Reads
lines: `go` builds and warms up, then says `ready PID`; `bite` begins the troubles; the end
of its input ends it. The book holds when each step ended and when it was bitten.
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

import torch
from torch.utils.data import DataLoader, Dataset
from troubles import TROUBLES, Trouble, compute
from work import WORK

WARM_S = 1.2


class Items(Dataset[torch.Tensor]):
    """Items that take some work to make; how much is told while it runs."""

    def __init__(self, work_ms: Any) -> None:
        self._work_ms = work_ms

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, _: int) -> torch.Tensor:
        compute(self._work_ms.value / 1e3)  # at: slow-worker crowd slow-item
        return torch.zeros(4096)


class Job:
    """Steps until it is told to end."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.bitten, self.ended = threading.Event(), threading.Event()
        self.work_ms = multiprocessing.Value("d", 0.05)
        self.times = array("q")
        self.bitten_at = 0

    def listen(self) -> None:
        """By the descriptor: whoever forks amid a read of sys.stdin gives its lock to the child for ever."""
        while said := os.read(0, 100):
            if b"bite" in said:
                self.bitten.set()
        self.ended.set()

    def batches(self) -> Any:
        loading = self.settings.get("input")
        if not loading:
            return None
        workers = loading["workers"]
        return iter(
            DataLoader(
                Items(self.work_ms), loading.get("batch", 4), num_workers=workers, pin_memory=workers > 0
            )
        )

    def troubles(self) -> list[Trouble]:
        """Made when they begin: what is kept for them is part of them."""
        self.bitten_at = time.monotonic_ns()
        for name, amount in self.settings["troubles"]:
            if name in ("slow-worker", "crowd", "slow-item"):
                self.work_ms.value = amount
        chosen = [(TROUBLES[name], amount) for name, amount in self.settings["troubles"] if name in TROUBLES]
        return [make(amount) for make, amount in chosen]

    def run(self) -> None:
        step = WORK[self.settings["work"]](self.settings.get("log_every", 1))
        always = [TROUBLES[name](amount) for name, amount in self.settings.get("always", [])]
        batches, troubles = self.batches(), list[Trouble]()
        pause_s = self.settings.get("requests", 0) / 1e3
        warm_until, ready = time.monotonic() + WARM_S, False
        while not self.ended.is_set():
            if batches is not None:
                batch = next(batches)  # at: slow-worker crowd slow-item
                batch.cuda(non_blocking=True)
            step()
            for each in always:
                each()
            for each in troubles:
                each()
            if pause_s:
                time.sleep(pause_s)
            self.times.append(time.monotonic_ns())
            if not ready and time.monotonic() > warm_until:
                ready = True
                print(f"ready {os.getpid()}", flush=True)
            if self.bitten.is_set() and not self.bitten_at:
                troubles = self.troubles()


def main(settings: dict[str, Any], book: Path) -> None:
    os.read(0, 3)  # go, and the end of its line
    job = Job(settings)
    threading.Thread(target=job.listen, daemon=True).start()
    job.run()
    book.write_text(json.dumps({"bitten": job.bitten_at, "ends": job.times.tolist()}))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
