"""Programs under a seccomp filter: what this kernel does to them when they are traced.

From 6.11 on a return probe on x86-64 comes back into the kernel by a system call of its own, which a
filter that does not know it may answer with death; later kernels (6.14, and 6.12 with its fixes) let
it pass every filter. Which of them this one is, nobody can tell by its number: a child of ours under the
strictest filter calls a probed function, and lives or does not.

Where it does not, calls are watched at their entry alone: counted, not timed. The session shape decides
that call by call. The others cannot: a probe on a file is met by every process that
maps it, also by one that comes tomorrow, so there nobody's calls are watched to their return.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ingero.attach.shapes import Point, Shape, own_point
from ingero.errors import UsageError
from ingero.model.checks import Check
from ingero.model.layout import Spare
from ingero.native import _shim

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
