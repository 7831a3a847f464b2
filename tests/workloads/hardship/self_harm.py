"""Breaks its own interpreter's structures around a CUDA call and mends them; runs on any CPython from 3.9.

    self_harm.py FOLDER OFFSETS

FOLDER holds the stub's libraries, OFFSETS are those of discover/python_offsets.py as JSON.
Prints `ready PID`, waits for a line, and for each way {"way", "bytes", "function", "line"},
then `done`, and waits for the end of its input. Whoever is not careful crashes here first.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys

word = ctypes.c_uint64.from_address
P = ctypes.byref(ctypes.c_void_p())
SOURCE = """
def {name}(place, value, bytes_):
    frame = word(STATE).value
    frame = word(frame + CFRAME).value if CFRAME is not None else frame
    spot = place(frame)
    whole, broken = spot.value, value(frame)
    spot.value = broken
    allocate(P, bytes_)
    spot.value = whole
"""
CALL_LINE = SOURCE.splitlines().index("    allocate(P, bytes_)") + 1


def ways(at: dict[str, int]):
    """By name: which word of a frame, or behind it, becomes what."""

    def caller(frame):
        return word(frame + at["frame_back"])

    def code(frame):
        return word(frame + at["frame_code"]).value & ~7

    def length(field):
        return lambda frame: word(word(code(frame) + at[field]).value + at["text_length"])

    lines = "bytes_length"
    return {
        "own_caller": (caller, lambda frame: frame),
        "caller_unmapped": (caller, lambda frame: 0x10000),
        "caller_in_the_kernel": (caller, lambda frame: 0xFFFFFFFF81000000),
        "no_caller": (caller, lambda frame: 0),
        "name_huge": (length("code_name"), lambda frame: 1 << 62),
        "name_negative": (length("code_name"), lambda frame: (1 << 64) - 1),
        "lines_huge": (
            lambda frame: word(word(code(frame) + at["code_lines"]).value + at[lines]),
            lambda frame: 1 << 62,
        ),
        "sound": (caller, lambda frame: word(frame + at["frame_back"]).value),
    }


def main(folder: str, at: dict[str, int]) -> None:
    gc.disable()  # up to 3.10 it follows frames
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    allocate = ctypes.CDLL(f"{folder}/libcudart.so.12").cudaMalloc
    ctypes.pythonapi.PyThreadState_Get.restype = ctypes.c_void_p
    state = ctypes.pythonapi.PyThreadState_Get() + at["state_frame"]
    scope = {"word": word, "P": P, "allocate": allocate, "STATE": state, "CFRAME": at.get("cframe_frame")}
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    for number, (way, (place, value)) in enumerate(ways(at).items()):
        exec(compile(SOURCE.format(name=way), "/job/self.py", "exec"), scope)
        scope[way](place, value, ctypes.c_size_t(501 + number))
        print(json.dumps({"way": way, "bytes": 501 + number, "line": CALL_LINE}))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
