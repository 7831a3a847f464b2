"""Trains as train.py does, in more shapes, and goes on where a step fails.

    fit.py SETTINGS BOOK

Prints `ready PID`, waits for a line, and trains until it is ended.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from pathlib import Path

from book import Book
from errands import Errands
from flow import Flow
from settings import Plan, read_plan
from sources import batches
from work import compute

from ingero.scenarios.cuda import CudaCallError, stub_runtime

AGAIN_S = 0.01  # after a failed step


def feed(plan: Plan, book: Book) -> None:
    """One more thread that trains."""
    device = Flow(plan.usual, book)
    device.start()
    while True:
        device.train(plan.at(book.phase))


def without_device(book: Book) -> None:
    """On the CPU; whether the device can be used is asked again now and then."""
    count = ctypes.c_int()
    while True:
        compute(20)
        if stub_runtime().try_call("cudaGetDeviceCount", ctypes.byref(count)):
            book.trouble_met()
        book.step_ended()


def train(plan: Plan, device: Flow, book: Book, path: str) -> None:
    try:
        device.start()
    except CudaCallError as error:
        print("no device:", error, file=sys.stderr, flush=True)
        without_device(book)
    for _ in range(plan.usual.feeders - 1):
        threading.Thread(target=feed, args=(plan, book), daemon=True).start()
    errands = Errands(plan, book, Path(path).parent)
    for count, _batch in enumerate(batches(plan, book, path), start=1):
        settings = plan.at(book.phase)
        try:
            device.train(settings)
        except CudaCallError:
            book.trouble_met()
            time.sleep(AGAIN_S)
        errands.after_step(settings)
        if errands.evaluation_is_due(settings):
            device.evaluate(settings)
        book.step_ended()
        if count == plan.usual.steps:
            break


def main() -> None:
    settings, path = sys.argv[1:3]
    plan, book = read_plan(settings), Book(path)
    device = Flow(plan.usual, book)
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    train(plan, device, book, path)


if __name__ == "__main__":
    main()
