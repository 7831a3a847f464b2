"""What a probe hit costs on this machine, measured on a function of our own.

The function returns at once, so the difference between traced and untraced calls
is the probe alone. Between calls as much memory is written as a core's own caches hold:
in a loop of nothing else a hit costs half of what it costs a program that does something
between its calls. The smallest of several rounds is taken, because everything else that
happens only adds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ingero.attach.filtered import Verdict, describe, judge
from ingero.attach.kernel import KernelSide, Settings
from ingero.attach.shapes import calibration_point, choose, named
from ingero.model import layout
from ingero.model.checks import Check
from ingero.model.governor import HitCost
from ingero.model.layout import Spare
from ingero.native import _shim

# No hit costs less, whatever a noisy moment shows: the cheapest there are take 600. If it cost nothing, the
# budget would be held by doing nothing.
LEAST_NS = 500.0
CALLS = 25  # some milliseconds: on a busy machine some rounds keep their core throughout
ROUNDS = 4
NONE_TIMED = 1 << 30
CALIBRATED = 0  # the number of the function costs are measured on
CACHES_BYTES = 4 << 20  # a core's own, on today's servers


def _time() -> float:
    """Nanoseconds of one call, best of several rounds."""
    memory = bytearray(CACHES_BYTES)
    return min(_shim.time_calls(CALLS, memory) / CALLS for _ in range(ROUNDS))


def measure() -> tuple[HitCost, Verdict]:
    """Cost of a hit, on a kernel side of its own in which this process is a target; and first, because this
    process may be under a filter itself, what hits do to those that are."""
    kernel = KernelSide(Settings(trace_all=True, ring_bytes=1 << 20, stacks=False))
    try:
        shape = choose(kernel)
        kernel.configure()
        verdict = judge(shape)
        spare = verdict.spare(shape.name)
        kernel.settings = replace(kernel.settings, trace_all=False, spare=spare)
        kernel.configure()
        if spare is Spare.SPARE_EVERYBODY:
            shape = named(kernel, shape.name)
        proc = np.zeros(1, layout.PROC)
        proc["flags"] = int(layout.ProcFlag.PROC_TARGET)
        kernel.write_proc(os.getpid(), proc)
        bare = _time()
        path, point = calibration_point()
        links = shape.attach(path, [point])
        try:
            return _cost(kernel, shape.name, bare), verdict
        finally:
            links.close()
    finally:
        kernel.close()


def _cost(kernel: KernelSide, shape: str, bare: float) -> HitCost:
    """Of each way to watch the function that stands for a launch."""
    timed = max(_time() - bare, LEAST_NS)
    kernel.set_watched({CALIBRATED}, every=NONE_TIMED)
    counted = max(_time() - bare, 0.0)
    kernel.set_watched({CALIBRATED}, closed=True)
    passed = max(_time() - bare, 0.0)
    kernel.set_watched({CALIBRATED})
    kernel.settings = replace(kernel.settings, record_all=True)
    kernel.configure()
    recorded = max(_time() - bare - timed, 0.0)
    return HitCost(shape, timed, min(counted, timed), min(passed, timed), recorded)


def describe_cost() -> Iterator[Check]:
    """For `check`."""
    cost, verdict = measure()
    slow = cost.ns > 5000
    yield describe(verdict, cost.shape)
    yield Check(
        "cost of a probe hit",
        "warning" if slow else "ok",
        f"{cost.ns / 1000:.2f} µs per traced call ({cost.shape})",
        "Tracing launch-bound jobs will cost more than usual here." if slow else "",
    )
