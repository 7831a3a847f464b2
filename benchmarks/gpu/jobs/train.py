"""A training job with one thing wrong, or nothing.

    train.py SETTINGS.json BOOK

Settings: fault (a name below or ""), model (see models.py), amount (how much of the fault),
cold (its first call is to be seen). Waits for a line before it touches the card, says
`ready PID` once it is warm and goes on until its input ends; then the step times go to the
book. A comment `# fault: NAME` marks the lines an answer may point to.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import models
import torch
from torch.utils.data import DataLoader, Dataset

kept: list[Any] = []
Extra = Callable[[], object]


def busy(seconds: float) -> int:
    """Python work, as decoding or augmenting is."""
    until = time.perf_counter() + seconds
    turns = 0
    while time.perf_counter() < until:  # fault: slow-loader-inline too-many-workers
        turns += 1  # fault: slow-loader-inline too-many-workers
    return turns


class Items(Dataset[torch.Tensor]):
    """Items that take some work to make."""

    def __init__(self, work_ms: float) -> None:
        self._work_s = work_ms / 1e3

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, _: int) -> torch.Tensor:
        busy(self._work_s)  # fault: slow-loader-inline too-many-workers
        return torch.zeros(4096)


def loader(work_ms: float, workers: int) -> Extra:
    batches: Iterator[torch.Tensor] = iter(
        DataLoader(Items(work_ms), batch_size=4, num_workers=workers, pin_memory=workers > 0)
    )

    def fetch() -> object:
        batch = next(batches)  # fault: slow-loader-inline slow-loader-workers too-many-workers
        return batch.cuda(non_blocking=True)

    return fetch


def gil_hog(_: float) -> Extra:
    def count() -> None:
        number = 0
        while True:
            number += 1  # fault: gil-hog

    threading.Thread(target=count, daemon=True).start()
    return lambda: None


def empty_cache(amount: float) -> Extra:
    def extra() -> None:
        for _ in range(int(amount)):
            scratch = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")  # fault: empty-cache
            del scratch
            torch.cuda.empty_cache()  # fault: empty-cache

    return extra


def items(amount: float) -> Extra:
    values = torch.ones(1024, device="cuda")

    def extra() -> float:
        total = 0.0
        for number in range(int(amount)):
            total += values[number].item()  # fault: items
        return total

    return extra


def pageable(amount: float) -> Extra:
    batch = torch.zeros(int(amount) << 18)
    batch += 1

    def extra() -> torch.Tensor:
        return batch.cuda()  # fault: pageable

    return extra


def collect(amount: float) -> Extra:
    kept.append([[number] for number in range(int(amount))])
    return lambda: gc.collect()  # fault: gc


def checkpoints(amount: float) -> Extra:
    folder = Path(os.environ["CHECKPOINTS"])
    weights = os.urandom(1 << 20) * int(amount)
    turn = 0

    def extra() -> None:
        nonlocal turn
        turn += 1
        if turn % 5 == 0:
            with (folder / "model.pt").open("wb") as file:
                file.write(weights)  # fault: checkpoints
                file.flush()  # fault: checkpoints
                os.fsync(file.fileno())  # fault: checkpoints

    return extra


def leak(amount: float) -> Extra:
    def extra() -> None:
        kept.append(torch.empty(int(amount) << 20, dtype=torch.uint8, device="cuda"))  # fault: leak

    return extra


def recapture(_: float) -> Extra:
    values = torch.ones(256, 256, device="cuda")

    def extra() -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # fault: recapture
            out = values
            for _ in range(40):
                out = out @ values  # fault: recapture
        graph.replay()

    return extra


def tiny(amount: float) -> Extra:
    values = torch.zeros(64, device="cuda")

    def extra() -> None:
        for _ in range(int(amount)):
            values.add_(1)  # fault: tiny

    return extra


def pause_for_evaluation(amount: float) -> Extra:
    turn = 0

    def extra() -> None:
        nonlocal turn
        turn += 1
        if turn % 60 == 0:
            with torch.no_grad():
                for _ in range(int(amount)):
                    (
                        torch.randn(2048, 2048, device="cuda") @ torch.randn(2048, 2048, device="cuda")
                    ).sum().item()

    return extra


def requests(amount: float) -> Extra:
    """Serving: some work, then nothing to do."""
    return lambda: time.sleep(amount / 1e3)


FAULTS: dict[str, Callable[[float], Extra]] = {
    "gil-hog": gil_hog,
    "slow-loader-inline": lambda amount: loader(amount, 0),
    "slow-loader-workers": lambda amount: loader(amount, 2),
    "too-many-workers": lambda amount: loader(amount, 16),
    "quick-loader": lambda amount: loader(amount, 4),
    "empty-cache": empty_cache,
    "items": items,
    "pageable": pageable,
    "gc": collect,
    "checkpoints": checkpoints,
    "leak": leak,
    "recapture": recapture,
    "tiny": tiny,
    "evaluation": pause_for_evaluation,
    "requests": requests,
}


def main(settings: dict[str, Any], book: Path) -> None:
    if settings.get("cold"):  # watched from its very first call
        print(f"ready {os.getpid()}", flush=True)
    sys.stdin.readline()
    step = models.MAKERS[settings["model"]]()
    fault = settings["fault"]
    extra = FAULTS[fault](settings["amount"]) if fault else lambda: None
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    if not settings.get("cold"):
        until = time.monotonic() + 3
        while time.monotonic() < until:
            step()
            extra()
        print(f"ready {os.getpid()}", flush=True)
    times = array("q")
    now = time.monotonic_ns()
    while not ended.is_set():
        step()
        extra()
        after = time.monotonic_ns()
        times.append(after - now)
        now = after
    with book.open("wb") as file:
        times.tofile(file)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
