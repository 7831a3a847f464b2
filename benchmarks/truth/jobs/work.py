"""Work for a CPU, in Python, as preparing data is."""

from __future__ import annotations

import time


def compute(ms: float) -> int:
    """Takes this much CPU time of the calling thread, however long that lasts."""
    if ms <= 0:
        return 0
    until_ns = time.thread_time_ns() + int(ms * 1e6)
    total = 0
    while time.thread_time_ns() < until_ns:
        total += sum(value * value for value in range(20))
    return total
