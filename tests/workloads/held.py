"""Stays in one CUDA call for a while, far from its first line; runs on any CPython from 3.9 without ingero.

    held.py FOLDER

FOLDER holds the stub's libraries; INGERO_STUB_ALLOC_US says for how long. Prints
`ready PID`, waits for a line, allocates once, prints {} and `done`, and waits for the end
of its input.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys


class Net:
    def __init__(self, allocate):
        self.allocate = allocate

    def __call__(self, *args):
        return self.forward(*args)

    def forward(self, depth):
        if depth:
            return self(depth - 1)
        return sorted([1], key=functools.partial(self.layer, "name"))

    def layer(self, name, value):
        return [each for each in self.parts(name)]  # noqa: C416

    def parts(self, name):
        yield self.allocate(
            ctypes.byref(ctypes.c_void_p()),
            ctypes.c_size_t(len(name)),
        )


def main(folder):
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    net = Net(ctypes.CDLL(f"{folder}/libcudart.so.12").cudaMalloc)
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    net(4)
    print(json.dumps({}))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
