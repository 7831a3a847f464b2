"""One job of the soak: uses the stub device for a while, as new to the agent as it can be.

    job.py FOLDER SECONDS SEED [HURRY]

FOLDER holds the stub's libraries. HURRY turns are made in the time of one. Every turn
makes some calls; now and then it defines functions that nobody saw before, starts threads
with new names, starts children, makes a communicator, sends a label. Any call that fails
makes the exit code 1. Runs without ingero.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

PAUSE_S = 0.1
KERNEL = "_Z9vectorAddPKfS0_Pfi"
LABELLED = "steps"


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class Device:
    """The calls a job makes; `failed` counts those that did not succeed."""

    def __init__(self, folder: str) -> None:
        ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
        self._runtime = ctypes.CDLL(f"{folder}/libcudart.so.12")
        self._nccl = ctypes.CDLL(f"{folder}/libnccl.so.2")
        self._runtime.cudaLaunchKernel.argtypes = (
            ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
        )  # fmt: skip
        self._runtime.cudaMalloc.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t)
        self._runtime.cudaFree.argtypes = (ctypes.c_void_p,)
        kernels = ctypes.CDLL(f"{folder}/libstubkernels.so")
        self._kernel = ctypes.cast(kernels[KERNEL], ctypes.c_void_p).value
        self.failed = 0

    def launch(self) -> None:
        one = Dim3(1, 1, 1)
        self.failed += self._runtime.cudaLaunchKernel(self._kernel, one, one, None, 0, None) != 0

    def step(self) -> None:
        for _ in range(20):
            self.launch()
        self.failed += self._runtime.cudaDeviceSynchronize() != 0

    def allocate(self) -> None:
        memory = ctypes.c_void_p()
        self.failed += self._runtime.cudaMalloc(memory, 1 << 16) != 0
        self.failed += self._runtime.cudaFree(memory) != 0

    def communicate(self) -> None:
        comm, devices = ctypes.c_void_p(), (ctypes.c_int * 1)(0)
        self.failed += self._nccl.ncclCommInitAll(ctypes.byref(comm), 1, devices) != 0
        self.failed += self._nccl.ncclCommDestroy(comm) != 0


def new_function(chance: random.Random) -> Callable[[Callable[[], None]], None]:
    """Code that no process ever ran before, under a name of its own."""
    name = f"layer_{chance.getrandbits(64):x}"
    scope: dict[str, Callable[[Callable[[], None]], None]] = {}
    exec(compile(f"def {name}(work):\n    return work()\n", f"/models/{name}.py", "exec"), scope)
    return scope[name]


def named_thread(device: Device, chance: random.Random) -> threading.Thread:
    """A thread that calls once and ends."""
    name = f"w-{chance.getrandbits(40):x}"

    def life() -> None:
        Path("/proc/thread-self/comm").write_text(name)
        device.step()

    return threading.Thread(target=life, name=name)


def child(folder: str, seed: int, hurry: float) -> int:
    """A process below this one that uses the device, too; whether it failed."""
    command = [sys.executable, "-I", "-S", __file__, folder, str(0.2 / hurry), str(seed), str(hurry)]
    return os.spawnv(os.P_WAIT, sys.executable, command)


def labelled(step: int) -> None:
    """As a job without ingero installed would do it; nobody has to listen."""
    import socket

    text = f"ingero1 {time.monotonic_ns()} 0 0\n{LABELLED}={step}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
            out.sendto(text.encode(), os.environ["INGERO_RUN_DIR"] + "/annotate.sock")
    except (KeyError, OSError):
        pass


def main(folder: str, seconds: float, seed: int, hurry: float = 1.0) -> int:
    device, chance = Device(folder), random.Random(seed)
    until, turn = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        turn += 1
        new_function(chance)(device.step) if turn % 20 == 0 else device.step()
        if turn % 7 == 0:
            device.allocate()
        if turn % 40 == 0:
            worker = named_thread(device, chance)
            worker.start()
            worker.join()
            labelled(turn)
        if turn % 50 == 0:
            device.failed += child(folder, turn, hurry)
            device.communicate()
        time.sleep(PAUSE_S / hurry)
    return int(device.failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), *map(float, sys.argv[4:])))
