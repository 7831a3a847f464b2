"""What a probe hit costs on this machine, measured on a function of our own.

The function returns at once, so the difference between traced and untraced calls
is the probe alone. Measured interleaved; the smallest of several rounds is taken,
because everything else that happens only adds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from ingero.attach.kernel import KernelSide, Settings
from ingero.attach.shapes import Shape, calibration_point, choose
from ingero.model import layout
from ingero.model.checks import Check
from ingero.native import _shim

CALLS = 2000
ROUNDS = 7


@dataclass(frozen=True, slots=True)
class HitCost:
    """Nanoseconds a traced call costs more than an untraced one."""

    shape: str
    ns: float


def time_on(shape: Shape) -> float:
    """Nanoseconds of one call with this shape's probe on it, best of several rounds."""
    path, point = calibration_point()
    links = shape.attach(path, [point])
    try:
        return min(_shim.time_calls(CALLS) / CALLS for _ in range(ROUNDS))
    finally:
        links.close()


def measure() -> HitCost:
    """Cost of a hit, on a kernel side of its own in which this process is a target."""
    kernel = KernelSide(Settings(trace_all=False, ring_bytes=1 << 20))
    try:
        shape = choose(kernel)
        kernel.configure()
        proc = np.zeros(1, layout.PROC)
        proc["flags"] = int(layout.ProcFlag.PROC_TARGET)
        kernel.write_proc(os.getpid(), proc)
        bare = min(_shim.time_calls(CALLS) / CALLS for _ in range(ROUNDS))
        return HitCost(shape.name, max(time_on(shape) - bare, 0.0))
    finally:
        kernel.close()


def describe_cost() -> Check:
    """For `check`."""
    cost = measure()
    slow = cost.ns > 5000
    return Check(
        "cost of a probe hit",
        "warning" if slow else "ok",
        f"{cost.ns / 1000:.2f} µs per traced call ({cost.shape})",
        "Tracing launch-bound jobs will cost more than usual here." if slow else "",
    )
