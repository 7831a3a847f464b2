"""Memory that is freed goes back to the kernel, so that a busy minute does not show for months."""

from __future__ import annotations

import subprocess
import sys

import pytest

CROWDED = """
import sys, threading
from pathlib import Path
import numpy as np
from ingero.native import _shim

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

def busy(kept, big, count):
    for _ in range(2):
        large = []
        for _ in range(count):
            large.append(np.ones(big // 8))
            kept.append(np.ones(100))  # keeps what lies before it from being the end of the pool
        del large

if sys.argv[1] == "mended":
    _shim.one_pool()
before, kept = resident_mb(), []
for big, count in ((1 << 20, 60), (100 << 10, 600)):
    threads = [threading.Thread(target=busy, args=(kept, big, count)) for _ in range(4)]
    for each in threads:
        each.start()
        each.join()
if sys.argv[1] == "mended":
    _shim.give_back()
print(resident_mb() - before)
"""


def left_mb(how: str) -> float:
    command = [sys.executable, "-c", CROWDED, how]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)


def test_what_several_threads_freed_goes_back() -> None:
    if (otherwise := left_mb("as it is")) < 30:
        pytest.skip(f"this C library kept only {otherwise:.0f} MB by itself")
    assert left_mb("mended") < 10
