"""How long it takes to put probes on a library's functions, and to take them off.

Attaching is what a user waits for at the start of a trace and what decides whether
the first calls of a library loaded later are seen.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import jobs
from benchmarks.figures import Figure, Section, at_most
from ingero.attach import shapes
from ingero.attach.kernel import KernelSide, Settings
from ingero.attach.session import Session
from ingero.discover.libraries import kind_of
from ingero.scenarios import cuda

TITLE = "Attaching"
TARGET_MS = 500
# Of the perf shape the kernel lets go in the background, for minutes: once is enough.
REPEATS = {"session": 9, "multi": 9, "perf": 1}
LOADS, QUICK_LOADS = 15, 4


@dataclass(frozen=True, slots=True)
class Attached:
    """Milliseconds, median over repeats."""

    functions: int
    on_ms: float
    off_ms: float


def real_libraries() -> Iterator[Path]:
    """NVIDIA's own, where their wheels are installed."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).glob("**/lib/lib*.so*")):
            if kind_of(str(path)) in ("runtime", "nccl"):
                yield path


def stub_libraries() -> Iterator[Path]:
    for name in ("libcudart.so.12", "libcuda.so.1", "libnccl.so.2"):
        yield cuda.stub_dir() / name


def attach_all(shape: shapes.Shape, libraries: Sequence[Path]) -> list[Attached]:
    """All functions of the table, hot ones at the runtime too: each file on, then each off.

    Off only when all are on: the kernel makes new perf probes wait until it has let go of old ones.
    """
    on = [_attach(shape, path) for path in libraries]
    return [Attached(functions, on_ms, _ms(session.close)) for session, functions, on_ms in on]


def _attach(shape: shapes.Shape, path: Path) -> tuple[Session, int, float]:
    kind = kind_of(str(path))
    assert kind is not None
    ctypes.CDLL(str(path))  # a process maps it, so its code changes
    session, status = Session(shape), path.stat()
    file = (status.st_dev, status.st_ino)
    on_ms = _ms(lambda: session.attach(file, str(path), str(path), kind, hot_runtime=True))
    return session, sum(session.counts().values()), on_ms


def _ms(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return (time.perf_counter() - begin) * 1000


def _shape_figures(name: str, libraries: dict[str, Path], repeats: int) -> list[Figure]:
    kind = next(kind for kind in shapes.SHAPES if kind.name == name)
    kernel = KernelSide(Settings())
    try:
        shape = kind(kernel)
        kernel.configure()
        rounds = [attach_all(shape, list(libraries.values())) for _ in range(repeats)]
        runs = zip(*rounds, strict=True)
        return [_figure(name, label, each) for label, each in zip(libraries, runs, strict=True)]
    finally:
        kernel.close()


def _figure(shape: str, label: str, runs: Sequence[Attached]) -> Figure:
    on = statistics.median(run.on_ms for run in runs)
    off = statistics.median(run.off_ms for run in runs)
    first = runs[0].on_ms
    shown = f"{first:,.0f} ms on at first, {on:,.0f} ms again; {off:,.0f} ms off"
    return at_most(f"{shape}: {label}, {runs[0].functions} functions", first, TARGET_MS, shown, " ms")


def load_to_probes_ms(loads: int) -> list[float]:
    """From a library being mapped in a traced process until its code carries the probe."""
    with tempfile.TemporaryDirectory() as folder:
        loader = (sys.executable, jobs.HERE / "load_library.py")
        with (
            jobs.job(*loader) as program,
            jobs.tracing(Path(folder), "--pid", str(program.pid), "--no-record") as trace,
        ):
            found = []
            for number in range(loads):  # a file that is probed already has its probes when it is mapped
                copy = Path(folder, str(number))
                shutil.copytree(cuda.stub_dir(), copy)
                program.start(str(copy / "libcudart.so.12"))
                found.append(program.answer()["waited_ns"] / 1e6)
            trace.stop()
            return found


def _load_figure(waited: list[float]) -> Figure:
    later = statistics.median(waited[1:])
    return Figure(
        "library mapped until its probes are on: first of a trace; later ones, median and longest",
        f"{waited[0]:.1f} ms; {later:.1f} ms, {max(waited[1:]):.1f} ms",
    )


METHOD = """\
`Session.attach` on a library file: reading its symbols, decoding the first instructions of each function
of the table, one link (session), two (multi) or two per function (perf); then `Session.close`. One
process maps the file. Repeated {repeats} times; "again" and "off" are medians. Hot functions of the
runtime are probed too, although a trace leaves them to the driver where there is one. For the last line a
traced Python process loads a fresh copy of the runtime {loads} times and watches the first byte of
`cudaMalloc` in its own memory until it changes; the clock starts when `dlopen` has returned."""

RESOLVES = """\
The kernel waits for all cores when it takes probes off, so that part is mostly waiting. Of the perf shape
it lets go of one function after another; the keeper that holds them does the waiting, and only letting
go is timed. Calls made before the probes are on are not seen: the last line is how many milliseconds of them
there are."""


def measure(quick: bool) -> Section:
    loads = QUICK_LOADS if quick else LOADS
    libraries = {f"real {path.name}": path for path in real_libraries()}
    libraries |= {f"stub {path.name}": path for path in stub_libraries()}
    figures: list[Figure] = [_load_figure(load_to_probes_ms(loads))]
    for name, repeats in REPEATS.items():
        try:
            figures += _shape_figures(name, libraries, repeats)
        except OSError as error:
            figures.append(Figure(f"{name}: not offered by this kernel", str(error.errno)))
    counts = ", ".join(f"{count} ({name})" for name, count in REPEATS.items())
    return Section(TITLE, (*figures[1:], figures[0]), METHOD.format(repeats=counts, loads=loads), RESOLVES)
