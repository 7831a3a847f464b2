"""Requests, a few at a time, on the device."""

from __future__ import annotations

import queue
import threading
from typing import Any

from runbook import Run
from torchlet import Device

from serving.statistics import Statistics


class Waiting:
    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked, self._over = asked, threading.Event()

    def wait(self) -> None:
        self._over.wait(30)

    def finish(self) -> None:
        self._over.set()


class Batcher:
    def __init__(self, device: Device, run: Run) -> None:
        self._device, self._run = device, run
        self._queue: queue.Queue[Waiting] = queue.Queue()
        self._result = device.empty(1 << 20)

    def submit(self, asked: dict[str, Any]) -> Waiting:
        waiting = Waiting(asked)
        self._queue.put(waiting)
        return waiting

    def _take(self) -> list[Waiting]:
        taken = [self._queue.get()]
        while len(taken) < self._run["max_batch"]:
            try:
                taken.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return taken

    def serve(self, statistics: Statistics) -> None:
        while True:
            batch = self._take()
            longest = max(each.asked.get("tokens", 1) for each in batch)
            for _ in range(longest):
                self._device.launch(self._run["prefill_us"], kind=1)
                for layer in range(self._run["layers"]):
                    self._device.launch(self._run["layer_us"], kind=layer)
                self._device.item(self._result)
            with statistics.lock:
                statistics.batches.append(len(batch))
            for each in batch:
                each.finish()
