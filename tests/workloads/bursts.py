"""Copies in bursts: per round 900 of one size in a row, 100 of another, then a rest.

    bursts.py ROUNDS

Prints `ready PID`, waits for a line, works, prints {size: copies} and `done`, and waits
for the end of its input.
"""

from __future__ import annotations

import json
import os
import sys
import time

from ingero.scenarios import cuda

MANY, FEW = 256, 512


def main(rounds: int) -> None:
    runtime = cuda.stub_runtime()
    device, host = runtime.malloc(4096), runtime.malloc_host(4096)
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    for _ in range(rounds):
        for size, times in ((MANY, 900), (FEW, 100)):
            for _ in range(times):
                runtime.cudaMemcpyAsync(device, host, size, cuda.HOST_TO_DEVICE, None)
            time.sleep(0.01)
        runtime.cudaStreamSynchronize(None)
    print(json.dumps({MANY: 900 * rounds, FEW: 100 * rounds}))
    print("done", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]))
