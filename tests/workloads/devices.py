"""Two threads on two devices, and a wait that lasts.

    devices.py [--seconds S] [--block]

Prints `ready PID`, waits for a line; each thread chooses a device, allocates and says
which; then the main thread waits for a kernel of S seconds (spinning, or blocked with
--block), and `done`. With --early the long wait is entered before `ready` is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time

from ingero.scenarios import cuda


def allocate(runtime: cuda.CudaRuntime, device: int, said: list[dict[str, int]]) -> None:
    runtime.cudaSetDevice(device)
    runtime.malloc(4096 * (device + 1))
    said.append({"device": device, "tid": threading.get_native_id(), "bytes": 4096 * (device + 1)})


def long_wait(runtime: cuda.CudaRuntime, seconds: float) -> None:
    runtime.launch(cuda.stub_kernel(cuda.KERNELS[0]), blocks=int(seconds * 1e6))
    runtime.cudaDeviceSynchronize()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--block", action="store_true")
    parser.add_argument("--early", action="store_true")
    options = parser.parse_args()
    runtime = cuda.stub_runtime()
    if options.block:
        runtime.cudaSetDeviceFlags(cuda.SCHEDULE_BLOCK)
    waiting = threading.Thread(target=long_wait, args=(runtime, options.seconds))
    if options.early:
        waiting.start()
        time.sleep(0.2)
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    said: list[dict[str, int]] = []
    if not options.early:
        threads = [threading.Thread(target=allocate, args=(runtime, device, said)) for device in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if options.seconds:
            waiting.start()
            waiting.join()
    print(json.dumps(said))
    print("done", flush=True)
    sys.stdin.readline()
    os._exit(0)


if __name__ == "__main__":
    main()
