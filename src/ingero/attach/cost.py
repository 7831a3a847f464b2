"""What a probe hit costs on this machine, measured on a function of our own.

The function returns at once, so the difference between traced and untraced calls
is the probe alone. Measured interleaved; the smallest of several rounds is taken,
because everything else that happens only adds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np

from ingero.attach.kernel import KernelSide, Settings
from ingero.attach.shapes import calibration_point, choose
from ingero.model import layout
from ingero.model.checks import Check
from ingero.model.layout import Group
from ingero.native import _shim

CALLS = 250  # less than a millisecond: on a busy machine some rounds keep their core throughout
ROUNDS = 50
RECORDED_ROUNDS = 10  # their records fit the ring
NONE_TIMED = 1 << 30
IN_A_PROGRAM = 1.2  # a launch of 5.45 us took 7.25 us traced, where 1.48 us were measured here


@dataclass(frozen=True, slots=True)
class HitCost:
    """Nanoseconds a traced call costs more than an untraced one."""

    shape: str
    ns: float  # timed: entry and return
    counted_ns: float = 0.0  # counted at its entry alone
    passed_ns: float = 0.0  # of an operation that is closed for the moment
    record_ns: float = 0.0  # a record in the ring, on top; its stack has its own measured cost

    def in_a_program(self) -> HitCost:
        """Between other code it costs more than in a loop of nothing else."""
        return HitCost(
            self.shape,
            IN_A_PROGRAM * self.ns,
            IN_A_PROGRAM * self.counted_ns,
            IN_A_PROGRAM * self.passed_ns,
            IN_A_PROGRAM * self.record_ns,
        )


def _time(rounds: int = ROUNDS) -> float:
    """Nanoseconds of one call, best of several rounds."""
    return min(_shim.time_calls(CALLS) / CALLS for _ in range(rounds))


def measure() -> HitCost:
    """Cost of a hit, on a kernel side of its own in which this process is a target."""
    kernel = KernelSide(Settings(trace_all=False, ring_bytes=1 << 20, stacks=False))
    try:
        shape = choose(kernel)
        kernel.configure()
        proc = np.zeros(1, layout.PROC)
        proc["flags"] = int(layout.ProcFlag.PROC_TARGET)
        kernel.write_proc(os.getpid(), proc)
        bare = _time()
        path, point = calibration_point()
        links = shape.attach(path, [point])
        try:
            return _cost(kernel, shape.name, bare)
        finally:
            links.close()
    finally:
        kernel.close()


def _cost(kernel: KernelSide, shape: str, bare: float) -> HitCost:
    """Of each way to watch the function that stands for a launch."""
    timed = max(_time() - bare, 0.0)
    kernel.set_watched({Group.GROUP_LAUNCH}, NONE_TIMED, closed=False)
    counted = max(_time() - bare, 0.0)
    kernel.set_watched({Group.GROUP_LAUNCH}, 0, closed=True)
    passed = max(_time() - bare, 0.0)
    kernel.set_watched({Group.GROUP_LAUNCH}, 0, closed=False)
    kernel.settings = replace(kernel.settings, record_all=True)
    kernel.configure()
    recorded = max(_time(RECORDED_ROUNDS) - bare - timed, 0.0)
    return HitCost(shape, timed, min(counted, timed), min(passed, timed), recorded)


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
