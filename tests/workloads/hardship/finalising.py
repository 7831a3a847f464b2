"""Calls CUDA while its interpreter ends, and after it has ended; runs on any CPython from 3.9.

    finalising.py FOLDER

FOLDER holds the stub's libraries. Prints `ready PID`, waits for a line, and ends: a daemon
thread allocates 9 bytes all the time, a function called at exit 10 bytes, and the C library
frees nothing when there is no interpreter any more.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time

P = ctypes.byref(ctypes.c_void_p())


def call_on(allocate) -> None:
    while True:
        allocate(P, ctypes.c_size_t(9))


def at_exit(allocate) -> None:
    allocate(P, ctypes.c_size_t(10))


def main(folder: str) -> None:
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    runtime = ctypes.CDLL(f"{folder}/libcudart.so.12")
    ctypes.CDLL(None).on_exit(runtime.cudaFree, None)
    atexit.register(at_exit, runtime.cudaMalloc)
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    threading.Thread(target=call_on, args=(runtime.cudaMalloc,), daemon=True).start()
    time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1])
