"""Calls CUDA in functions whose line table or file name is not in memory yet.

    absent_texts.py FOLDER SCRATCH

FOLDER holds the stub's libraries. The interpreter's own frozen modules are like that: what
nobody has read of a file that is mapped is not there. Runs on any CPython from 3.9 without
ingero. Prints `ready PID`, waits for a line, calls, prints {"lines"} and `done`, and waits
for the end of its input.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
from pathlib import Path
from types import CodeType, FunctionType

WORDS = 64  # of a code object: its pointers are among the first


def put_away(code: CodeType, text: str | bytes, file: Path, mapped: list[mmap.mmap]) -> None:
    """Let the code object point to a copy of what it has, in a file nobody has read."""
    words = (ctypes.c_uint64 * WORDS).from_address(id(code))
    [field] = [number for number, word in enumerate(words) if word == id(text)][:1]
    size = sys.getsizeof(text)
    file.write_bytes(ctypes.string_at(id(text), size))
    with file.open("rb") as opened:
        area = mmap.mmap(opened.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    mapped.append(area)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    words[field] = address


def main(folder: str, scratch: Path) -> None:
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    allocate = ctypes.CDLL(f"{folder}/libcudart.so.12").cudaMalloc
    p, size = ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(64)

    def without_lines() -> None:
        allocate(p, size)

    def without_file() -> None:
        allocate(p, size)

    made: list[FunctionType] = [without_lines, without_file]  # type: ignore[list-item]
    codes = [function.__code__ for function in made]
    mapped: list[mmap.mmap] = []
    table = codes[0].co_linetable if sys.version_info >= (3, 10) else codes[0].co_lnotab
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    put_away(codes[0], table, scratch / "lines", mapped)
    put_away(codes[1], codes[1].co_filename, scratch / "file", mapped)
    for function in made:
        function()
    print(json.dumps({"lines": [code.co_firstlineno + 1 for code in codes], "file": __file__}))
    print("done", flush=True)
    sys.stdin.read()
    os._exit(0)  # what was put away must not be freed


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
