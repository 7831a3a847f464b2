"""Threads that call CUDA from several lines in turn, fast; the bytes tell which line it was.

    many_sites.py FOLDER THREADS ROUNDS

FOLDER holds the stub's libraries. Runs on any CPython from 3.9 without ingero. Prints
`ready PID`, waits for a line, works, prints {"calls", "seconds", "lines": {bytes: line}}
and `done`, and waits for the end of its input.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import sys
import threading
import time

BYTES = [ctypes.c_size_t(1000 + site) for site in range(6)]


def first(allocate, p):
    allocate(p, BYTES[0])
    allocate(p, BYTES[1])


def second(allocate, p):
    allocate(
        p,
        BYTES[2],
    )
    third(allocate, p)


def third(allocate, p):
    for size in BYTES[3:4]:
        allocate(p, size)
    list(map(lambda size: allocate(p, size), BYTES[4:5]))  # noqa: C417
    next(allocate(p, size) for size in BYTES[5:])


def work(allocate, rounds: int) -> None:
    p = ctypes.byref(ctypes.c_void_p())
    for _ in range(rounds):
        first(allocate, p)
        second(allocate, p)


def lines() -> dict[int, int]:
    """Where the sizes are used, by the program's own text."""
    text = pathlib.Path(__file__).read_text("utf-8").splitlines()
    marks = {
        0: "allocate(p, BYTES[0])",
        1: "allocate(p, BYTES[1])",
        2: "allocate(",
        3: "        allocate(p, size)",
    }
    marks.update({4: "    list(map(lambda", 5: "    next(allocate"})
    found = {}
    for site, mark in marks.items():
        exact = [i for i, line in enumerate(text, 1) if line.startswith(mark) or line.strip() == mark]
        found[1000 + site] = exact[0]
    return found


def main(folder: str, threads: int, rounds: int) -> None:
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    allocate = ctypes.CDLL(f"{folder}/libcudart.so.12").cudaMalloc
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    at_work = [threading.Thread(target=work, args=(allocate, rounds)) for _ in range(threads)]
    for thread in at_work:
        thread.start()
    for thread in at_work:
        thread.join()
    took = time.monotonic() - began
    print(json.dumps({"calls": threads * rounds * 6, "seconds": took, "lines": lines()}))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
