"""Calls CUDA before and after forks, in children and theirs; runs on any CPython from 3.9 without ingero.

    forking.py FOLDER

FOLDER holds the stub's libraries. Prints `ready PID`, waits for a line, allocates 4000
bytes, forks a child that allocates 4001, in a thread 4002 and in code it makes 4003, and
forks one that allocates 4004; allocates 4005 itself when they have ended. Prints
{"pids": {bytes: process}, "lines": {bytes: line}} and `done`, and waits for the end of
its input.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import sys
import threading

P = ctypes.byref(ctypes.c_void_p())


def in_parent(allocate, size: int) -> None:
    allocate(P, ctypes.c_size_t(size))  # 4000 4005


def in_thread(allocate) -> None:
    allocate(P, ctypes.c_size_t(4002))  # 4002


def in_grandchild(allocate) -> None:
    allocate(P, ctypes.c_size_t(4004))  # 4004


def in_child(allocate) -> None:
    allocate(P, ctypes.c_size_t(4001))  # 4001
    thread = threading.Thread(target=in_thread, args=(allocate,))
    thread.start()
    thread.join()
    scope = {"allocate": allocate, "P": P, "size": ctypes.c_size_t(4003)}
    exec(compile("\n\n\ndef made():\n    allocate(P, size)\nmade()\n", "<made>", "exec"), scope)


def child_of(work, allocate) -> int:
    """The process that ran `work`, and has ended."""
    child = os.fork()
    if child == 0:
        work(allocate)
        os._exit(0)
    os.waitpid(child, 0)
    return child


def lines() -> dict[int, int]:
    found = {4003: 5}
    for number, line in enumerate(pathlib.Path(__file__).read_text("utf-8").splitlines(), 1):
        if line.startswith("    allocate(P"):
            found.update(dict.fromkeys(map(int, line.partition("# ")[2].split()), number))
    return found


def main(folder: str) -> None:
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    allocate = ctypes.CDLL(f"{folder}/libcudart.so.12").cudaMalloc
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    reading, writing = os.pipe()

    def in_both(allocate) -> None:
        in_child(allocate)
        os.write(writing, str(child_of(in_grandchild, allocate)).encode())

    in_parent(allocate, 4000)
    child = child_of(in_both, allocate)
    in_parent(allocate, 4005)
    me, grandchild = os.getpid(), int(os.read(reading, 32))
    pids = {4000: me, 4001: child, 4002: child, 4003: child, 4004: grandchild, 4005: me}
    print(json.dumps({"pids": pids, "lines": lines()}))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
