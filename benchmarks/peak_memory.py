"""Runs a command and prints its peak memory in KiB.

A program of its own, because the kernel begins a child's peak with its parent's size:
started by the benchmarks themselves, a small command would seem as large as they are.
"""

from __future__ import annotations

import resource
import subprocess
import sys

if __name__ == "__main__":
    subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
