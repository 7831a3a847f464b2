"""What a traced call costs, against the cheapest probe there can be.

The yardstick is a pair of programs that do nothing, at the entry and the return of
the same function: what the kernel takes for being probed at all. The ratio to it is
what our programs add, and is stable where nanoseconds are not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure, Section, at_most
from benchmarks.intervals import Interval, mirrored, ratio_of_medians
from benchmarks.machine import pinned
from ingero.attach import probes, shapes
from ingero.attach.kernel import KernelSide, Settings
from ingero.attach.shapes import MULTI_RETURN, TRACE_UPROBE_MULTI, TRACE_UPROBE_SESSION, Links, Point, keep
from ingero.capture.counters import LossBook
from ingero.capture.ring import RingReader
from ingero.model import layout
from ingero.model.layout import OpFlag, ProcFlag, RecordType
from ingero.native import _shim

TITLE = "Cost of a probe"
TARGET_RATIO = 1.3
CALLS, WARM_CALLS = 3000, 500
WARM = bytearray()  # nothing is driven out of the caches between calls: what is compared is the programs
# Rounds of eight segments; taking a probe off takes the kernel 50 ms, of the perf shape 200 ms.
ROUNDS = {"session": 120, "multi": 60, "perf": 20}
BARE_ROUNDS = 20
QUICK_ROUNDS = {"session": 12, "multi": 4, "perf": 2}
LONGEST_S, QUICK_LONGEST_S = 90, 6  # of a shape: a busy kernel takes its time to take probes off
RING_BYTES = 16 << 20
PROGRAMS = frozenset({"empty_session", "empty_enter", "empty_return", "produce"})

Attach = Callable[[str, Point], Links]


def _empty_session(kernel: KernelSide) -> Attach:
    types = {"empty_session": TRACE_UPROBE_SESSION}
    fd = kernel.load("bench", PROGRAMS - set(types), types).program_fd("empty_session")
    return lambda path, point: keep(kernel, [(fd, 0)], TRACE_UPROBE_SESSION, path, [(point.offset, 0)])


def _empty_multi(kernel: KernelSide) -> Attach:
    types = {"empty_enter": TRACE_UPROBE_MULTI, "empty_return": TRACE_UPROBE_MULTI}
    loaded = kernel.load("bench", PROGRAMS - set(types), types)
    ends = [(loaded.program_fd("empty_enter"), 0), (loaded.program_fd("empty_return"), MULTI_RETURN)]
    return lambda path, point: keep(kernel, ends, TRACE_UPROBE_MULTI, path, [(point.offset, 0)])


def _empty_perf(kernel: KernelSide) -> Attach:
    loaded = kernel.load("bench", PROGRAMS - {"empty_enter", "empty_return"})
    device = Path("/sys/bus/event_source/devices/uprobe")
    kind = int((device / "type").read_text())
    at_return = 1 << int((device / "format/retprobe").read_text().split(":")[1])
    ends = [(loaded.program_fd("empty_enter"), 0), (loaded.program_fd("empty_return"), at_return)]
    return lambda path, point: keep(kernel, ends, kind, path, [(point.offset, 0)], perf=True)


EMPTY: dict[str, Callable[[KernelSide], Attach]] = {
    "session": _empty_session,
    "multi": _empty_multi,
    "perf": _empty_perf,
}


class Traced:
    """The real programs, with this process as their target."""

    def __init__(self, shape: str, record_all: bool) -> None:
        self.kernel = KernelSide(Settings(trace_all=False, record_all=record_all, ring_bytes=RING_BYTES))
        kind = next(kind for kind in shapes.SHAPES if kind.name == shape)
        self._shape = kind(self.kernel)
        self.kernel.configure()
        self._succeed()
        proc = np.zeros(1, layout.PROC)
        proc["flags"] = int(ProcFlag.PROC_TARGET | ProcFlag.PROC_RANGES)
        self.kernel.write_proc(os.getpid(), proc)
        self._ring = RingReader(self.kernel.maps["ring"], RING_BYTES)
        self._losses = LossBook(self.kernel.maps["losses"], self.kernel.cpus)

    def _succeed(self) -> None:
        """The function probed returns its argument: as a status that would be a failed launch."""
        row = probes.kernel_table(os.uname().machine)[:1].copy()
        row["flags"] &= ~np.uint32(int(OpFlag.OP_STATUS))
        _shim.map_update(self.kernel.maps["op_info"], bytes(4), row.tobytes())

    def attach(self, path: str, point: Point) -> Links:
        return self._shape.attach(path, [point])

    def tidy(self) -> None:
        """Between segments: room in the ring, and nothing may have been lost."""
        self._ring.drain()
        self._ring.take(RecordType.REC_CALL)
        lost = self._losses.read()
        if lost:
            raise RuntimeError(f"events were lost while the probe was timed: {lost}")


def _segment(attach: Attach, path: str, point: Point) -> float:
    """Nanoseconds per call with this probe on."""
    links = attach(path, point)
    try:
        _shim.time_calls(WARM_CALLS, WARM)
        return _shim.time_calls(CALLS, WARM) / CALLS
    finally:
        links.close()


def _measure_shape(shape: str, rounds: int, longest_s: float) -> dict[str, NDArray[np.float64]]:
    """Nanoseconds a probe adds to a call, by arm: one row per round, two segments each."""
    plain = KernelSide(Settings(ring_bytes=1 << 16))
    traced, recorded = Traced(shape, record_all=False), Traced(shape, record_all=True)
    arms: dict[str, Attach] = {
        "empty": EMPTY[shape](plain),
        "empty again": EMPTY[shape](plain),
        "traced": traced.attach,
        "recorded": recorded.attach,
    }
    path, point = shapes.calibration_point()
    bare = min(_shim.time_calls(CALLS, WARM) / CALLS for _ in range(BARE_ROUNDS))
    found: dict[str, list[list[float]]] = {name: [] for name in arms}
    try:
        deadline = time.monotonic() + longest_s
        while len(found["empty"]) < rounds and (time.monotonic() < deadline or not found["empty"]):
            times: dict[str, list[float]] = {name: [] for name in arms}
            for name in mirrored(list(arms)):
                times[name].append(_segment(arms[name], path, point) - bare)
                traced.tidy()
                recorded.tidy()
            for name, pair in times.items():
                found[name].append(pair)
    finally:
        for kernel in (plain, traced.kernel, recorded.kernel):
            kernel.close()
    return {name: np.array(pairs) for name, pairs in found.items()}


def _figures(shape: str, times: dict[str, NDArray[np.float64]]) -> list[Figure]:
    empty = times["empty"]
    ratio = ratio_of_medians(times["traced"], empty)
    null = ratio_of_medians(times["empty again"], empty)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    return [
        at_most(
            f"{shape}: traced call against empty pair",
            ratio.value,
            TARGET_RATIO,
            f"{ratio} x",
            " x",
            ratio.excludes(TARGET_RATIO),
        ),
        Figure(f"{shape}: empty pair against itself (null test)", f"{null} x"),
        Figure(f"{shape}: every call recorded, against empty pair", f"{_recorded(times)} x"),
        Figure(
            f"{shape}: ns added to a call: empty, traced, recorded",
            f"{medians['empty']:,.0f}, {medians['traced']:,.0f}, {medians['recorded']:,.0f}",
        ),
    ]


def _recorded(times: dict[str, NDArray[np.float64]]) -> Interval:
    return ratio_of_medians(times["recorded"], times["empty"])


METHOD = """\
A function of five instructions that begins with `push` is called {calls:,} times in a row with a probe on
it. Four kinds of probe take turns, mirrored (A B C D D C B A) within each round and attached anew for
every turn: an empty program at entry and return, the same again from a second copy, ingero's call program
as it is by default (histogram, split of time, caller, a sampled record), and the same with every call
recorded. The probed call stands for `cuLaunchKernel`. Rounds: {rounds}. The value is the ratio of
medians, in brackets its 95 % bootstrap interval over rounds."""

RESOLVES = """\
"Not surely" means that the interval lies on both sides of the target. The null test compares equal
programs: a ratio nearer to 1 than its interval is wide cannot be told from no cost. The function is in
the cache and does nothing else; between real work caches are colder and a call costs more, with an empty
probe too. What the ratio means for a job depends on how long its own calls are (next section)."""


def measure(quick: bool) -> Section:
    wanted, longest_s = (QUICK_ROUNDS, QUICK_LONGEST_S) if quick else (ROUNDS, LONGEST_S)
    figures: list[Figure] = []
    rounds: list[str] = []
    with pinned(-1):
        for shape, count in wanted.items():
            try:
                times = _measure_shape(shape, count, longest_s)
            except OSError as error:
                figures.append(Figure(f"{shape}: not offered by this kernel", str(error.errno)))
            else:
                figures += _figures(shape, times)
                rounds.append(f"{shape} {len(times['empty'])}")
    method = METHOD.format(calls=CALLS, rounds=", ".join(rounds))
    return Section(TITLE, tuple(figures), method, RESOLVES)
