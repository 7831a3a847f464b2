"""Allocates 4001 bytes and becomes its twin: the same file, where name and number are others.

    twin.py FOLDER TWIN

FOLDER holds the stub's libraries. Each prints `ready PID` and waits for a line; the second
prints `done` and waits for the end of its input.
"""

import ctypes
import os
import sys

P = ctypes.byref(ctypes.c_void_p())


def aaaa(allocate, size):
    return allocate(P, ctypes.c_size_t(size))


ctypes.CDLL(sys.argv[1] + "/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
function = ctypes.CDLL(sys.argv[1] + "/libcudart.so.12").cudaMalloc
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
aaaa(function, 4001)
if aaaa.__name__ > "aaab":
    print("done", flush=True)
    sys.stdin.read()
else:
    os.execv(sys.executable, [sys.executable, "-S", sys.argv[2], sys.argv[1], sys.argv[2]])
