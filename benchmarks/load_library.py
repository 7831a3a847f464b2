"""Loads a library by path and waits until a probe sits on its cudaMalloc.

Says `ready PID`; answers each line holding a path with {"waited_ns": ...}. A probe is
a changed instruction: the first bytes of the function differ from the file's.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time

GIVE_UP_NS = 10_000_000_000


def wait_for_probe(path: str) -> int:
    library = ctypes.CDLL(path)
    begin = time.monotonic_ns()
    address = ctypes.cast(library.cudaMalloc, ctypes.c_void_p).value
    assert address is not None
    code = (ctypes.c_ubyte * 16).from_address(address)
    untouched = original(path, library)
    while bytes(code) == untouched:
        if time.monotonic_ns() - begin > GIVE_UP_NS:
            raise TimeoutError(f"{path} was not probed")
    return time.monotonic_ns() - begin


def original(path: str, library: ctypes.CDLL) -> bytes:
    """The function's bytes in the file, which no probe touches."""
    from ingero.native import elf

    del library
    with elf.ElfFile(path) as file:
        symbol = elf.find_in(file.functions, ["cudaMalloc"])["cudaMalloc"]
        return file.read(symbol.offset, 16)


def main() -> None:
    print("ready", os.getpid(), flush=True)
    for line in sys.stdin:
        print(json.dumps({"waited_ns": wait_for_probe(line.strip())}), flush=True)


if __name__ == "__main__":
    main()
