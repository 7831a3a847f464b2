"""Calls CUDA within sub-interpreters, in threads and in threads of their own; CPython 3.9 and later.

    subinterpreters.py FOLDER KIND COUNT

FOLDER holds the stub's libraries; KIND is `isolated` (a lock each, from 3.12 on) or `legacy`.
Prints `ready PID`, waits for a line, runs this file's own `inside` in COUNT sub-interpreters
at a time, which allocate 3001, 3002, ... bytes and in a thread of their own 100 more, and
allocates 3000 itself. Prints {"lines": {function: line}} and `done`, and waits for the end
of its input.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import sys
import threading

P = ctypes.byref(ctypes.c_void_p())


def allocate(folder: str, size: int) -> None:
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(f"{folder}/libcudart.so.12").cudaMalloc(P, ctypes.c_size_t(size))


def in_its_thread(folder: str, size: int) -> None:
    allocate(folder, size + 100)


def inside(folder: str, size: int) -> None:
    thread = threading.Thread(target=in_its_thread, args=(folder, size))
    thread.start()
    thread.join()
    allocate(folder, size)


def run(kind: str, script: str) -> None:
    if sys.version_info >= (3, 13):
        import _interpreters

        _interpreters.run_string(_interpreters.create(kind), script)
    else:
        import _xxsubinterpreters

        _xxsubinterpreters.run_string(_xxsubinterpreters.create(isolated=kind == "isolated"), script)


def script(folder: str, size: int) -> str:
    here = str(pathlib.Path(__file__).resolve())
    return (
        f"scope = {{'__name__': 'within', '__file__': {here!r}}}\n"
        f"exec(compile(open({here!r}, encoding='utf-8').read(), {here!r}, 'exec'), scope)\n"
        f"scope['inside']({folder!r}, {size})\n"
    )


def lines() -> dict[str, int]:
    text = pathlib.Path(__file__).read_text("utf-8").splitlines()
    marks = {
        "allocate": '    ctypes.CDLL(f"{folder}/libcudart',
        "in_its_thread": "    allocate(folder, size + 100)",
        "inside": "    allocate(folder, size)",
    }
    found = {}
    for name, mark in marks.items():
        found[name] = 1 + next(i for i, line in enumerate(text) if line.startswith(mark))
    return found


def main(folder: str, kind: str, count: int) -> None:
    allocate(folder, 2999)
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    at_work = [threading.Thread(target=run, args=(kind, script(folder, 3001 + n))) for n in range(count)]
    for thread in at_work:
        thread.start()
    for thread in at_work:
        thread.join()
    allocate(folder, 3000)
    print(json.dumps({"lines": lines()}))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
