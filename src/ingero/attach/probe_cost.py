"""What tracing costs on this machine and does to whoever is traced: a hit of a probe, a context switch,
and programs under a seccomp filter. Each is tried on ourselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ingero.attach.kernel import KernelSide, Settings
from ingero.attach.shapes import Point, Shape, calibration_point, choose, named, own_point
from ingero.errors import UsageError
from ingero.model import layout
from ingero.model.check_line import Check
from ingero.model.hit_cost import HitCost
from ingero.model.layout import Spare
from ingero.native import _shim

# What a probe hit costs on this machine, measured on a function of our own.
#
# The function returns at once, so the difference between traced and untraced calls
# is the probe alone. Between calls as much memory is written as a core's own caches hold:
# in a loop of nothing else a hit costs half of what it costs a program that does something
# between its calls. The smallest of several rounds is taken, because everything else that
# happens only adds.

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


# What a context switch of anybody costs more while the scheduler's programs are on.
#
# Two threads of ours pass a byte to and fro on one core, before the programs are attached and after it.
# Neither is traced, so this is what a bystander pays. The quickest of several rounds counts, because
# everything else that happens only adds.


TRIPS = 400  # two milliseconds
SWITCH_ROUNDS = 8


def switch_ns() -> float | None:
    """A switch now, wake-up included; None where two threads cannot be put on one core."""
    try:
        return min(_shim.time_switches(TRIPS) for _ in range(SWITCH_ROUNDS)) / (2 * TRIPS)
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


# Programs under a seccomp filter: what this kernel does to them when they are traced.
#
# From 6.11 on a return probe on x86-64 comes back into the kernel by a system call of its own, which a
# filter that does not know it may answer with death; later kernels (6.14, and 6.12 with its fixes) let
# it pass every filter. Which of them this one is, nobody can tell by its number: a child of ours under the
# strictest filter calls a probed function, and lives or does not.
#
# Where it does not, calls are watched at their entry alone: counted, not timed. The session shape decides
# that call by call. The others cannot: a probe on a file is met by every process that
# maps it, also by one that comes tomorrow, so there nobody's calls are watched to their return.


FORCED = "INGERO_SECCOMP"  # safe or unsafe: as if the child had lived or not


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether programs under a filter survive return probes here."""

    safe: bool
    why: str

    def spare(self, shape: str) -> Spare:
        if self.safe:
            return Spare.SPARE_NOBODY
        return Spare.SPARE_FILTERED if shape == "session" else Spare.SPARE_EVERYBODY


def judge(shape: Shape) -> Verdict:
    """Try it; its kernel side takes calls of every process."""
    forced = os.environ.get(FORCED)
    if forced:
        if forced not in ("safe", "unsafe"):
            raise UsageError(f"{FORCED}={forced}: no such verdict", hint="Use safe or unsafe, or unset it.")
        return Verdict(forced == "safe", f"{FORCED} says so")
    path, first = own_point("ingero_calibration_target")
    _, second = own_point("ingero_filtered_target")
    links = shape.attach(path, [Point(each.offset, 0) for each in (first, second)])
    try:
        signal = _shim.call_under_filter()
    except OSError as error:
        return Verdict(True, f"no filter can be installed here ({os.strerror(error.errno or 0)})")
    finally:
        links.close()
    if signal:
        return Verdict(
            False, f"a child under a filter was killed when a probed call returned (signal {signal})"
        )
    return Verdict(True, "tested with a child process")


def describe(verdict: Verdict, shape: str) -> Check:
    """For `check`."""
    if verdict.safe:
        return Check("seccomp", "ok", f"programs under a seccomp filter can be traced: {verdict.why}")
    who = "programs under a seccomp filter (most containers)" if shape == "session" else "all programs"
    return Check(
        "seccomp",
        "warning",
        f"calls of {who} are counted, not timed: {verdict.why}",
        "Update the kernel: 6.14 and later, and 6.12 from 6.12.14 on, are known not to do that.",
    )
