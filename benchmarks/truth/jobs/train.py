"""Trains a model: per step a batch, its copy to the device, kernels, a synchronisation.

    train.py SETTINGS BOOK

Prints `ready PID`, waits for a line, and trains until it is ended.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from book import Book
from chores import Chores
from device import Device, rank_of
from loader import batches
from settings import Plan, Settings, read_plan


def stand_still() -> None:
    """A wait that nobody ends."""
    reading, _writing = os.pipe()
    os.read(reading, 1)


def step(settings: Settings, device: Device, chores: Chores) -> None:
    if settings.leaves:
        os._exit(1)  # as after a crash: nothing is closed in order
    if settings.stands_still:
        stand_still()
    device.train(settings)
    chores.after_step(settings)
    if chores.evaluation_is_due(settings):
        device.evaluate(settings)


def train(plan: Plan, book: Book, path: str) -> None:
    rank = rank_of()
    device = Device(plan.usual, book, int(os.environ.get("LOCAL_RANK", "0")))
    if plan.usual.pin_ranks:
        os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})
    if rank == 0:
        print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    device.start()
    if plan.usual.ranks > 1:
        device.join(plan.usual.ranks, Path(path).parent)
    chores = Chores(plan, book)
    for count, _batch in enumerate(batches(plan, book, path, rank), start=1):
        step(plan.at(book.phase, rank), device, chores)
        if rank == 0:
            book.step_ended()
        if count == plan.usual.steps:
            time.sleep(3600)


def main() -> None:
    settings, path = sys.argv[1:3]
    train(read_plan(settings), Book(path), path)


if __name__ == "__main__":
    main()
