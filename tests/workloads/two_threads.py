"""Two Python threads that are in each other's way; runs on any CPython from 3.9 without ingero.

    two_threads.py FOLDER gil|lock

FOLDER holds the stub's libraries. One thread feeds the device: a CUDA call, again and
again. With `gil` the other computes in Python, so that the feeder waits for the
interpreter after every call; with `lock` the other sleeps while it holds a lock the
feeder takes. Prints `ready PID`, waits for a line, works for a second, prints the
feeder's thread as JSON and `done`, and waits for the end of its input.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time

WORKS_S = 1.0
HOLDS_S = 0.02
LOCK = threading.Lock()


def hog(until: float, said: dict[str, int]) -> None:
    said["other"] = threading.get_native_id()
    while time.monotonic() < until:
        sum(range(1000))


def hold(until: float, said: dict[str, int]) -> None:
    said["other"] = threading.get_native_id()
    while time.monotonic() < until:
        with LOCK:
            time.sleep(HOLDS_S)
        time.sleep(0.001)  # or nobody else ever gets it


def feed(runtime: ctypes.CDLL, kind: str, until: float, said: dict[str, int]) -> None:
    said["tid"] = threading.get_native_id()
    while time.monotonic() < until:
        runtime.cudaDeviceSynchronize()  # ctypes gives the interpreter away meanwhile
        if kind == "lock":
            with LOCK:
                pass
        said["rounds"] = said.get("rounds", 0) + 1


def main(folder: str, kind: str) -> None:
    ctypes.CDLL(f"{folder}/libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    runtime = ctypes.CDLL(f"{folder}/libcudart.so.12")
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    until, said = time.monotonic() + WORKS_S, {}
    other = hog if kind == "gil" else hold
    threads = [
        threading.Thread(target=feed, args=(runtime, kind, until, said)),
        threading.Thread(target=other, args=(until, said)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(said))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
