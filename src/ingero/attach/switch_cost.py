"""What a context switch of anybody costs more while the scheduler's programs are on.

Two threads of ours pass a byte to and fro on one core, before the programs are attached and after it.
Neither is traced, so this is what a bystander pays. The quickest of several rounds counts, because
everything else that happens only adds.
"""

from __future__ import annotations

from ingero.attach.kernel import KernelSide, Settings
from ingero.attach.shapes import choose
from ingero.model.checks import Check
from ingero.native import _shim

TRIPS = 400  # two milliseconds
ROUNDS = 8


def switch_ns() -> float | None:
    """A switch now, wake-up included; None where two threads cannot be put on one core."""
    try:
        return min(_shim.time_switches(TRIPS) for _ in range(ROUNDS)) / (2 * TRIPS)
    except OSError:
        return None


def added_ns(before: float | None, after: float | None) -> float | None:
    """Unknown where one of them is; the noise of an idle machine is not a gain."""
    return None if before is None or after is None else max(after - before, 0.0)


def describe_switch_cost() -> Check:
    """For `check`."""
    kernel = KernelSide(Settings(trace_all=False, ring_bytes=1 << 20, stacks=False))
    try:
        choose(kernel)  # its object has the maps that the others share
        kernel.configure()
        before = switch_ns()
        kernel.attach_host()
        ns = added_ns(before, switch_ns())
    finally:
        kernel.close()
    name = "cost of a context switch"
    if ns is None:
        return Check(name, "ok", "unknown: two threads cannot share one core here")
    return Check(name, "ok", f"{ns / 1000:.2f} µs more per switch, for all programs, while tracing")
