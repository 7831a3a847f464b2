"""Calls CUDA from a given depth of Python frames; runs on any CPython from 3.9 without ingero.

    deep.py FOLDER DEPTH CALLS [SECONDS]

FOLDER holds the stub's libraries. Prints `ready PID`, waits for a line, allocates CALLS
times, computes for SECONDS, prints {"calls"} and `done`, and waits for the end of its input.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time


def down(depth: int, allocate: ctypes._FuncPtr, calls: int, seconds: float) -> None:
    if depth > 0:
        down(depth - 1, allocate, calls, seconds)
        return
    p, size = ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(64)
    for _ in range(calls):
        allocate(p, size)
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def main(folder: str, depth: int, calls: int, seconds: float = 0.0) -> None:
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    allocate = ctypes.CDLL(f"{folder}/libcudart.so.12").cudaMalloc
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    down(depth - 3, allocate, calls, seconds)  # <module>, main and the innermost are frames, too
    print(json.dumps({"calls": calls}))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *(float(word) for word in sys.argv[4:]))
