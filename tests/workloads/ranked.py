"""A rank as torchrun starts it, and its children: one forked, one that is another program.

    ranked.py [--calls N]

Prints `ready PID`, waits for a line, makes N calls, forks a child that ends at once, starts a
program that ends at once with RANK=5 and LOCAL_RANK=1 of WORLD_SIZE=6, prints the numbers of
both as JSON and `done`, and waits for another line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys


def forked() -> int:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


def executed() -> int:
    environment = {**os.environ, "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "6"}
    with subprocess.Popen(["/bin/sh", "-c", ":", "a child"], env=environment) as child:
        child.wait()
    return child.pid


def main() -> None:
    from ingero.scenarios import cuda

    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=3)
    options = parser.parse_args()
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    runtime = cuda.stub_runtime()
    for _ in range(options.calls):
        runtime.cudaDeviceSynchronize()
    print(json.dumps({"forked": forked(), "executed": executed()}), flush=True)
    print("done", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
