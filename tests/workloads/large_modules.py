"""Imports modules whose top-level code calls CUDA and has a line table longer than any record.

    large_modules.py FOLDER SCRATCH MODULES

FOLDER holds the stub's libraries; the modules are written to SCRATCH. Runs on any CPython
from 3.9 without ingero. Prints `ready PID`, waits for a line, imports, prints {"files"}
and `done`, and waits for the end of its input. The code of a module is freed once it ran.
"""

from __future__ import annotations

import builtins
import ctypes
import importlib
import json
import os
import sys
from pathlib import Path

FILLING = 6000  # lines: four bytes of line table each, and more


def main(folder: str, scratch: Path, modules: int) -> None:
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    allocate = ctypes.CDLL(f"{folder}/libcudart.so.12").cudaMalloc
    p, size = ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(64)
    builtins.call_cuda = lambda: allocate(p, size)  # type: ignore[attr-defined]
    names = [f"large_{number}" for number in range(modules)]
    for name in names:
        lines = [f"v{number % 7} = v{(number + 3) % 7}" for number in range(FILLING)]
        start = [f"v{number} = {number}" for number in range(7)]
        (scratch / f"{name}.py").write_text("\n".join([*start, *lines, "call_cuda()", ""]))
    sys.path.insert(0, str(scratch))
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    for name in names:
        importlib.import_module(name)
    print(json.dumps({"files": [str(scratch / f"{name}.py") for name in names]}))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
