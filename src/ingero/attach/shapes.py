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
ENDS = ("session", "multi_enter", "multi_return", "perf_enter", "perf_return")


@dataclass(frozen=True, slots=True)
class Point:
    """One probe: where in the file, and the operation's number."""

    offset: int
    op: int


class Shape(Protocol):
    """Attaches the programs of one object, which has a form of them for every shape."""

    name: str

    def attach(self, path: str, points: Sequence[Point]) -> list[int]:
        """Attach all points of one file; descriptors to close for detaching."""
        ...


def _but(name: str, *ends: str) -> frozenset[str]:
    """The programs of an object that are for other shapes."""
    return frozenset(f"{name}_{end}" for end in ENDS if end not in ends)


def _numbers(values: Sequence[int]) -> bytes:
    return np.asarray(values, "<u8").tobytes()


class SessionShape:
    name = "session"

    def __init__(self, kernel: KernelSide, name: str = "call") -> None:
        program = f"{name}_session"
        loaded = kernel.load(name, _but(name, "session"), {program: TRACE_UPROBE_SESSION})
        self._program = loaded.program_fd(program)

    def attach(self, path: str, points: Sequence[Point]) -> list[int]:
        offsets = _numbers([p.offset for p in points])
        cookies = _numbers([p.op for p in points])
        return [_shim.link_uprobe_multi(self._program, TRACE_UPROBE_SESSION, path, offsets, cookies, 0, 0)]


class MultiShape:
    name = "multi"

    def __init__(self, kernel: KernelSide, name: str = "call") -> None:
        types = {f"{name}_{end}": TRACE_UPROBE_MULTI for end in ("multi_enter", "multi_return")}
        loaded = kernel.load(name, _but(name, "multi_enter", "multi_return"), types)
        self._programs = [loaded.program_fd(program) for program in types]

    def attach(self, path: str, points: Sequence[Point]) -> list[int]:
        offsets = _numbers([p.offset for p in points])
        cookies = _numbers([p.op for p in points])
        links: list[int] = []
        # Entry first: a return without its entry would be a loss, an entry without
        # its return is noticed and dropped.
        try:
            for fd, flags in zip(self._programs, (0, MULTI_RETURN), strict=True):
                links.append(
                    _shim.link_uprobe_multi(fd, TRACE_UPROBE_MULTI, path, offsets, cookies, flags, 0)
                )
        except OSError:
            detach(links)
            raise
        return links[::-1]  # off in the opposite order


class PerfShape:
    name = "perf"

    def __init__(self, kernel: KernelSide, name: str = "call") -> None:
        loaded = kernel.load(name, _but(name, "perf_enter", "perf_return"))
        self._programs = [loaded.program_fd(f"{name}_{end}") for end in ("perf_enter", "perf_return")]
        device = Path("/sys/bus/event_source/devices/uprobe")
        self._type = int((device / "type").read_text())
        self._return = 1 << int((device / "format/retprobe").read_text().split(":")[1])

    def attach(self, path: str, points: Sequence[Point]) -> list[int]:
        held: list[int] = []
        try:
            for fd, config in zip(self._programs, (0, self._return), strict=True):
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


def same_for(shape: Shape, kernel: KernelSide, name: str) -> Shape:
    """The shape that was chosen, for the programs of another object; OSError where it is refused."""
    return next(kind for kind in SHAPES if kind.name == shape.name)(kernel, name)


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
