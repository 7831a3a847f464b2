"""Garbage collections, counted by the interpreter itself; runs on any CPython from 3.9 without ingero.

    collecting.py FOLDER

FOLDER holds the stub's libraries. Prints `ready PID` and waits for a line. Then the main
thread makes CUDA calls, some of them in finalizers that a collection runs, and another
thread, which makes none, collects a large heap and much small garbage. Prints as JSON how
many collections there were and how long those of the other thread took, then `done`, and
waits for the end of its input.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import threading
import time

LARGE = 150_000
TIMES = 5
FINALIZERS = 20


def collections() -> int:
    return sum(each["collections"] for each in gc.get_stats())


class Tensor:
    """Frees what is on the device when it dies, in a cycle, so that only a collection ends it."""

    def __init__(self, runtime: ctypes.CDLL) -> None:
        self.runtime = runtime
        self.itself = self

    def __del__(self) -> None:
        self.runtime.cudaFree(None)


def collect_a_lot(said: dict[str, object]) -> None:
    said["tid"] = threading.get_native_id()
    kept = [[number] for number in range(LARGE)]
    took = []
    for _ in range(TIMES):
        before = time.monotonic_ns()
        gc.collect()
        took.append(time.monotonic_ns() - before)
    gc.enable()
    for _ in range(20_000):
        kept.append([[]])  # the young generation fills up again and again
    gc.disable()
    said["took_ns"] = took


def main(folder: str) -> None:
    gc.disable()
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    runtime = ctypes.CDLL(f"{folder}/libcudart.so.12")
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    before, said = collections(), {}
    runtime.cudaDeviceSynchronize()
    for _ in range(FINALIZERS):
        Tensor(runtime)
    gc.collect()
    other = threading.Thread(target=collect_a_lot, args=(said,))
    other.start()
    other.join()
    said["collections"] = collections() - before
    print(json.dumps(said))
    print("done", flush=True)
    sys.stdin.read()
    os._exit(0)  # the collections at its end are not counted by anybody


if __name__ == "__main__":
    main(sys.argv[1])
