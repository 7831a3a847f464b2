"""How a uprobe is attached: three shapes, newest first.

session (6.13+): one link per file, entry and return in one program.
multi (6.6+): two links per file, one per end.
perf (5.15+): two perf events per function; slow to detach (about 0.1 s each, so
that is left to a child). INGERO_ATTACH forces one; otherwise the first that
the kernel takes is used. No version tests: distributions backport.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from ingero.attach.kernel import KernelSide, explain_refusal
from ingero.errors import KernelError, UsageError
from ingero.model.checks import Check
from ingero.native import _shim, elf
from ingero.native.instructions import probe_site

TRACE_UPROBE_MULTI = 48
TRACE_UPROBE_SESSION = 57
MULTI_RETURN = 1
PROGRAMS = ("call_session", "call_multi_enter", "call_multi_return", "call_perf_enter", "call_perf_return")


@dataclass(frozen=True, slots=True)
class Point:
    """One probe: where in the file, and the operation's number."""

    offset: int
    op: int


class Shape(Protocol):
    name: str

    def attach(self, path: str, points: Sequence[Point]) -> list[int]:
        """Attach all points of one file; descriptors to close for detaching."""
        ...


def _numbers(values: Sequence[int]) -> bytes:
    return np.asarray(values, "<u8").tobytes()


class SessionShape:
    name = "session"

    def __init__(self, kernel: KernelSide) -> None:
        off = frozenset(PROGRAMS) - {"call_session"}
        self._call = kernel.load("call", off, {"call_session": TRACE_UPROBE_SESSION})

    def attach(self, path: str, points: Sequence[Point]) -> list[int]:
        offsets = _numbers([p.offset for p in points])
        cookies = _numbers([p.op for p in points])
        program = self._call.program_fd("call_session")
        return [_shim.link_uprobe_multi(program, TRACE_UPROBE_SESSION, path, offsets, cookies, 0, 0)]


class MultiShape:
    name = "multi"

    def __init__(self, kernel: KernelSide) -> None:
        types = {"call_multi_enter": TRACE_UPROBE_MULTI, "call_multi_return": TRACE_UPROBE_MULTI}
        self._call = kernel.load("call", frozenset(PROGRAMS) - set(types), types)

    def attach(self, path: str, points: Sequence[Point]) -> list[int]:
        offsets = _numbers([p.offset for p in points])
        cookies = _numbers([p.op for p in points])
        links: list[int] = []
        # Entry first: a return without its entry would be a loss, an entry without
        # its return is noticed and dropped.
        try:
            for program, flags in (("call_multi_enter", 0), ("call_multi_return", MULTI_RETURN)):
                fd = self._call.program_fd(program)
                links.append(
                    _shim.link_uprobe_multi(fd, TRACE_UPROBE_MULTI, path, offsets, cookies, flags, 0)
                )
        except OSError:
            detach(links)
            raise
        return links[::-1]  # off in the opposite order


class PerfShape:
    name = "perf"

    def __init__(self, kernel: KernelSide) -> None:
        self._call = kernel.load("call", frozenset(PROGRAMS) - {"call_perf_enter", "call_perf_return"})
        device = Path("/sys/bus/event_source/devices/uprobe")
        self._type = int((device / "type").read_text())
        self._return = 1 << int((device / "format/retprobe").read_text().split(":")[1])

    def attach(self, path: str, points: Sequence[Point]) -> list[int]:
        held: list[int] = []
        try:
            for program, config in (("call_perf_enter", 0), ("call_perf_return", self._return)):
                fd = self._call.program_fd(program)
                for point in points:
                    held.extend(_shim.link_uprobe_perf(fd, self._type, path, point.offset, point.op, config))
        except OSError:
            detach(held)
            raise
        return held[::-1]


SHAPES: tuple[type[SessionShape] | type[MultiShape] | type[PerfShape], ...] = (
    SessionShape,
    MultiShape,
    PerfShape,
)


def detach(descriptors: Sequence[int]) -> None:
    """Close links. Many perf events are left to a dying child: see below.

    The kernel takes about 0.1 s to let go of each, one after the other. A child that
    holds copies of them and ends does the waiting, so that we need not.
    """
    if len(descriptors) <= 8:
        for fd in descriptors:
            os.close(fd)
        return
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, pass_fds=descriptors) as heir:
        for fd in descriptors:
            os.close(fd)
        assert heir.stdin is not None
        heir.stdin.close()
        heir.returncode = 0  # not waited for: init takes it


def calibration_point() -> tuple[str, Point]:
    """A function of our own to try a shape on."""
    path = _shim.__file__
    assert path is not None
    with elf.ElfFile(path) as file:
        symbol = elf.find_in(file.functions, ["ingero_calibration_target"])["ingero_calibration_target"]
        site = probe_site(file.read(symbol.offset, 32), file.machine)
    return path, Point(symbol.offset + site.offset, 0)


def _try(kernel: KernelSide, kind: type[SessionShape] | type[MultiShape] | type[PerfShape]) -> Shape:
    shape = kind(kernel)
    path, point = calibration_point()
    detach(shape.attach(path, [point]))
    return shape


def choose(kernel: KernelSide) -> Shape:
    """The newest shape this kernel takes, or the one INGERO_ATTACH names."""
    forced = os.environ.get("INGERO_ATTACH")
    if forced and forced not in {kind.name for kind in SHAPES}:
        raise UsageError(
            f"INGERO_ATTACH={forced}: no such attach shape", hint="Use session, multi or perf, or unset it."
        )
    refusals: list[OSError] = []
    for kind in SHAPES:
        if forced and kind.name != forced:
            continue
        try:
            return _try(kernel, kind)
        except OSError as error:
            refusals.append(error)
    raise explain_refusal(refusals[0] if forced else refusals[-1], "the call probes") from refusals[-1]


def describe_shapes() -> list[Check]:
    """Which shapes this kernel offers, for `check`."""
    from ingero.attach.kernel import Settings

    checks = []
    for kind in SHAPES:
        kernel = KernelSide(Settings())
        try:
            _try(kernel, kind)
            checks.append(Check(f"attach shape {kind.name}", "ok", "offered"))
        except (OSError, KernelError) as error:
            why = (
                error.strerror.splitlines()[0]
                if isinstance(error, OSError) and error.strerror
                else str(error)
            )
            checks.append(Check(f"attach shape {kind.name}", "warning", f"not offered ({why})"))
        finally:
            kernel.close()
    return checks
