"""Naps of a millisecond or two, deep in Python frames; runs on any CPython from 3.9 without ingero.

    many_naps.py FOLDER KIND NAPS

FOLDER holds the stub's libraries. With KIND `same` every nap is on one line, behind 24
frames; with `new` each is behind frames of functions just made, whose names and line
tables are nearly as long as is copied when a code object is met first. Prints `ready PID`,
waits for a line, naps NAPS times, prints {"naps"} and `done`, and waits for the end of
its input.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time

PAUSE_S = 0.0015
DEPTH = 20
MADE_DEPTH = 8
LINES = 500  # a line table of some 2 to 6 kB, as the version has it
TEXT = "x" * 1500


def down(depth: int) -> None:
    if depth:
        down(depth - 1)
    else:
        time.sleep(PAUSE_S)


def made(turn: int) -> None:
    """Functions that call one another, none of them ever seen before."""
    scope = {"sleep": lambda: time.sleep(PAUSE_S)}
    for number in range(MADE_DEPTH):
        inner = f"f{number - 1}{TEXT}" if number else "sleep"
        body = f"def f{number}{TEXT}():\n" + "    a = 1\n" * LINES + f"    {inner}()\n"
        exec(compile(body, f"{turn}-{number}-{TEXT}.py", "exec"), scope)
    scope[f"f{MADE_DEPTH - 1}{TEXT}"]()


def main(folder: str, kind: str, naps: int) -> None:
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    allocate = ctypes.CDLL(f"{folder}/libcudart.so.12").cudaMalloc
    allocate(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1))
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    allocate(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1))
    for turn in range(naps):
        if kind == "new":
            made(turn)
        else:
            down(DEPTH)
    print(json.dumps({"naps": naps}))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
