"""Waits on known lines, between CUDA calls; runs on any CPython from 3.9 without ingero.

    lines.py FOLDER ROUNDS [SECONDS]

FOLDER holds the stub's libraries. Prints `ready PID`, waits for a line, sleeps and waits for
a lock for SECONDS (0.02) each, ROUNDS times, prints {"tid", "lines": {function: line}} and `done`, and
waits for the end of its input.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import sys
import threading
import time

PAUSE_S = float(sys.argv[3]) if len(sys.argv) > 3 else 0.02


def nap():
    time.sleep(PAUSE_S)


def want(lock):
    lock.acquire(
        timeout=PAUSE_S,
    )


def deep(depth, lock):
    return deep(depth - 1, lock) if depth else want(lock)


def main(folder, rounds):
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    allocate = ctypes.CDLL(f"{folder}/libcudart.so.12").cudaMalloc
    lock = threading.Lock()
    lock.acquire()
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    for _ in range(rounds):
        allocate(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1))
        nap()
        deep(20, lock)
    text = pathlib.Path(__file__).read_text("utf-8").splitlines()
    lines = {"nap": text.index("    time.sleep(PAUSE_S)") + 1, "want": text.index("    lock.acquire(") + 1}
    print(json.dumps({"tid": threading.get_native_id(), "lines": lines}))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
