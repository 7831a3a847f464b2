"""How a uprobe is attached: three shapes, newest first.

session (6.13+): one link per file, entry and return in one program.
multi (6.6+): two links per file, one per end.
perf (5.15+): two perf events per function; the kernel takes about 0.1 s to let go of
each, one after the other. INGERO_ATTACH forces one; otherwise the first that the
kernel takes is used. No version tests: distributions backport.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np

from ingero import isolated
from ingero.attach.kernel import KernelSide, explain_refusal
from ingero.errors import KernelError, UsageError
from ingero.model.check_line import Check
from ingero.model.layout import Cookie, Spare
from ingero.native import _shim, elf
from ingero.native.instructions import probe_site

TRACE_UPROBE_MULTI = 48
TRACE_UPROBE_SESSION = 57
MULTI_RETURN = 1
PERF_DEVICE = Path("/sys/bus/event_source/devices/uprobe")
PAGES_S = 5.0  # so long a file's pages are waited for
MEANWHILE_S = 0.01
ENDS = ("session", "multi_enter", "multi_return", "perf_enter", "perf_return")


@dataclass(frozen=True, slots=True)
class Point:
    """One probe: where in the file, the operation's number, and which variant of its link this is."""

    offset: int
    op: int
    variant: int = 0


class Shape(Protocol):
    """Attaches the programs of one object, which has a form of them for every shape."""

    name: str

    def attach(self, path: str, points: Sequence[Point]) -> Links:
        """Attach all points of one file."""
        ...


def _but(name: str, *ends: str) -> frozenset[str]:
    """The programs of an object that are for other shapes."""
    return frozenset(f"{name}_{end}" for end in ENDS if end not in ends)


class SessionShape:
    name = "session"

    def __init__(self, kernel: KernelSide, name: str = "call", returns: bool = True) -> None:  # noqa: ARG002
        program = f"{name}_session"  # says itself, call by call, whether it wants the return
        loaded = kernel.load(name, _but(name, "session"), {program: TRACE_UPROBE_SESSION})
        self._ends = [(loaded.program_fd(program), 0)]
        self._kernel = kernel

    def attach(self, path: str, points: Sequence[Point]) -> Links:
        return keep(self._kernel, self._ends, TRACE_UPROBE_SESSION, path, _pairs(points))


class MultiShape:
    name = "multi"

    def __init__(self, kernel: KernelSide, name: str = "call", returns: bool = True) -> None:
        types = {f"{name}_{end}": TRACE_UPROBE_MULTI for end in ("multi_enter", "multi_return")}
        loaded = kernel.load(name, _but(name, "multi_enter", "multi_return"), types)
        # Entry first: a return without its entry would be a loss, an entry without
        # its return is noticed and dropped.
        self._ends = [
            (loaded.program_fd(f"{name}_multi_enter"), 0),
            (loaded.program_fd(f"{name}_multi_return"), MULTI_RETURN),
        ][: 2 if returns else 1]
        self._kernel = kernel

    def attach(self, path: str, points: Sequence[Point]) -> Links:
        return keep(self._kernel, self._ends, TRACE_UPROBE_MULTI, path, _pairs(points))


class PerfShape:
    name = "perf"

    def __init__(self, kernel: KernelSide, name: str = "call", returns: bool = True) -> None:
        loaded = kernel.load(name, _but(name, "perf_enter", "perf_return"))
        self._type = _perf_type()
        at_return = 1 << int((PERF_DEVICE / "format/retprobe").read_text().split(":")[1])
        self._ends = [
            (loaded.program_fd(f"{name}_perf_enter"), 0),
            (loaded.program_fd(f"{name}_perf_return"), at_return),
        ][: 2 if returns else 1]
        self._kernel = kernel

    def attach(self, path: str, points: Sequence[Point]) -> Links:
        return keep(self._kernel, self._ends, self._type, path, _pairs(points), perf=True)


class EntryShape:
    """For an object whose programs look at the entry alone; where sessions are offered, multi is too."""

    def __init__(self, kernel: KernelSide, name: str, perf: bool) -> None:
        self.name = "perf" if perf else "multi"
        program = f"{name}_{self.name}_enter"
        types = {} if perf else {program: TRACE_UPROBE_MULTI}
        loaded = kernel.load(name, frozenset({f"{name}_{'multi' if perf else 'perf'}_enter"}), types)
        self._ends = [(loaded.program_fd(program), 0)]
        self._type = _perf_type() if perf else TRACE_UPROBE_MULTI
        self._kernel = kernel

    def attach(self, path: str, points: Sequence[Point]) -> Links:
        return keep(self._kernel, self._ends, self._type, path, _pairs(points), perf=self.name == "perf")


def _perf_type() -> int:
    return int((PERF_DEVICE / "type").read_text())


def _pairs(points: Sequence[Point]) -> list[tuple[int, int]]:
    return [(point.offset, point.op | point.variant << Cookie.COOKIE_VARIANT_SHIFT) for point in points]


SHAPES: tuple[type[SessionShape] | type[MultiShape] | type[PerfShape], ...] = (
    SessionShape,
    MultiShape,
    PerfShape,
)


def same_for(shape: Shape, kernel: KernelSide, name: str) -> Shape:
    """The shape that was chosen, for the programs of another object; OSError where it is refused."""
    if kernel.settings.spare is Spare.SPARE_EVERYBODY:
        raise OSError(errno.EOPNOTSUPP, "probes at returns would kill programs under a seccomp filter")
    return next(kind for kind in SHAPES if kind.name == shape.name)(kernel, name)


def entry_only(shape: Shape, kernel: KernelSide, name: str) -> Shape:
    """What goes with the shape that was chosen, for programs at the entry alone."""
    return EntryShape(kernel, name, perf=shape.name == "perf")


def calibration_point() -> tuple[str, Point]:
    """A function of our own to try a shape on."""
    return own_point("ingero_calibration_target")


def own_point(name: str) -> tuple[str, Point]:
    path = _shim.__file__
    assert path is not None
    with elf.ElfFile(path) as file:
        symbol = elf.find_in(file.functions, [name])[name]
        site = probe_site(file.read(symbol.offset, 32), file.machine)
    return path, Point(symbol.offset + site.offset, 0)


def _try(kernel: KernelSide, kind: type[SessionShape] | type[MultiShape] | type[PerfShape]) -> Shape:
    shape = kind(kernel)
    path, point = calibration_point()
    shape.attach(path, [point]).close()
    return shape


def named(kernel: KernelSide, name: str) -> Shape:
    """A shape that was tried already, with no more probes at returns than is safe."""
    returns = kernel.settings.spare is not Spare.SPARE_EVERYBODY
    return next(kind for kind in SHAPES if kind.name == name)(kernel, returns=returns)


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


# Probes on one library file, held by a keeper: off when we let go, and when we die.
#
# The keeper is a process that has the links and nothing else, and exits when the pipe
# from us ends (why: native/_keeper.c). Somebody may kill it; then the probes are gone
# before their time and `gone` says so.


@dataclass(slots=True, eq=False)
class Links:
    """What one attach made."""

    keeper: int
    prompt: bool  # the kernel lets go of them at once, so that it can be waited for
    _hold: int  # the keeper reads the other end
    _ended: bool = False

    def let_go(self) -> None:
        """The keeper ends, and the probes with it."""
        os.close(self._hold)
        self._hold = -1

    def gone(self, wait: bool = False) -> bool:
        """Whether the probes are off."""
        if not self._ended:  # afterwards the number may be somebody else's
            try:
                self._ended = os.waitpid(self.keeper, 0 if wait else os.WNOHANG)[0] != 0
            except ChildProcessError:  # where SIGCHLD is ignored nobody is told how children end
                self._ended = True
        return self._ended

    def close(self) -> None:
        """Take the probes off, however long it takes."""
        self.let_go()
        self.gone(wait=True)


def keep(
    kernel: KernelSide,
    ends: Sequence[tuple[int, int]],
    kind: int,
    path: str,
    points: Sequence[tuple[int, int]],
    perf: bool = False,
) -> Links:
    """Attach programs (descriptor, flags) to (offset, cookie) of a file; OSError where it is refused."""
    offsets, cookies = np.array(points, "<u8").reshape(-1, 2).T.copy()
    programs = np.array(ends, "<u4")
    served = kernel.settings.served or path == _shim.__file__
    made: list[Links | OSError] = []
    lock, given_up = threading.Lock(), False

    def make() -> None:
        result: Links | OSError
        try:
            keeper, hold = _shim.keep_uprobes(
                _command(), programs, kind, path, offsets, cookies, perf, served
            )
            result = Links(keeper, not perf, hold)
        except OSError as error:
            result = error
        with lock:
            made.append(result)
            if given_up and isinstance(result, Links):  # nobody will take them off any more
                result.let_go()

    # In a thread: the child asks for the file's pages first, and whoever has them may never answer. A thread
    # that is left behind waits for its child in the kernel, and ends with us.
    thread = threading.Thread(target=make, name="attach", daemon=True)
    thread.start()
    until = time.monotonic() + PAGES_S
    thread.join(MEANWHILE_S)
    while thread.is_alive() and time.monotonic() < until:
        kernel.meanwhile()
        thread.join(MEANWHILE_S)
    with lock:
        given_up = True
        if not made:
            raise TimeoutError(errno.ETIMEDOUT, f"its pages did not come within {PAGES_S:.0f} s")
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


@cache
def _command() -> tuple[str, ...]:
    """Something small that reads its input to the end."""
    cat = shutil.which("cat", path="/bin:/usr/bin")
    return (cat,) if cat else isolated.reader_of_input()
