"""Code objects that are freed and made anew in the same place, called something else each time.

    used_again.py FOLDER ROUNDS

FOLDER holds the stub's libraries. Runs on any CPython from 3.9. Prints `ready PID`, waits
for a line, and for each round {"bytes", "function", "file", "line"}, then {"places"}: at how
many addresses they were; and `done`, and waits for the end of its input.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys

P = ctypes.byref(ctypes.c_void_p())
# Each differs from the next in one character, and in neither its length nor its ends.
NAMES = ("a_function_{:04}_with_a_name_too_long_to_compare", "größe_{:04}_einer_schicht", "长_{:04}_度")
FILES = ("/job/generated_{:04}/a_module_with_a_long_name.py", "/jöb/{:04}/模块.py")
SOURCE = "def {}():\n    if P:\n{}        allocate(P, BYTES)\n"


def called(number: int) -> tuple[str, str, int]:
    """Function, file and line of a round."""
    name, file = NAMES[number // 40 % len(NAMES)], FILES[number // 20 % len(FILES)]
    return name.format(number), file.format(number), 3 + number % 3


def one_round(allocate, number: int) -> int:
    name, file, line = called(number)
    scope = {"P": P, "allocate": allocate, "BYTES": ctypes.c_size_t(2001 + number)}
    exec(compile(SOURCE.format(name, "        pass\n" * (line - 3)), file, "exec"), scope)
    function = scope.pop(name)  # else the two would keep each other
    function()
    return id(function.__code__)


def main(folder: str, rounds: int) -> None:
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    allocate = ctypes.CDLL(f"{folder}/libcudart.so.12").cudaMalloc
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    places = set()
    for number in range(rounds):  # nothing of a round outlives it, so that the next one finds its place
        places.add(one_round(allocate, number))
        if "t" in sys.abiflags:  # free-threaded: only a collection frees code
            gc.collect()
    for number in range(rounds):
        name, file, line = called(number)
        print(json.dumps({"bytes": 2001 + number, "function": name, "file": file, "line": line}))
    print(json.dumps({"places": len(places)}))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
