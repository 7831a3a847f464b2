"""What the agent takes as machines grow: with cores, processes and their operations, threads.

More cores than the machine has are made believe (INGERO_CPUS): what is sized and read by core is then sized
and read for so many. Processes and threads are real.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import jobs
from benchmarks.figures import Figure, Section, at_most
from benchmarks.machine import cpu_s, memory_bytes
from ingero.capture.operations import OperationBook
from ingero.capture.threads import ThreadBook
from ingero.model import layout

TITLE = "Growth"
CORES, PROCESSES, THREADS = 256, 64, 3000
TARGET_MB, TARGET_SHARE = 150, 5.0
SETTLE_S, SECONDS, QUICK_SECONDS = 4.0, 10.0, 3.0
COUNTERS = (500, 4000, 12_288)
REPEATS = 9
STUB = {"INGERO_STUB_KERNEL_US": "0.1"}


@dataclass(frozen=True, slots=True)
class Crowd:
    """A job, and how many cores the machine is said to have."""

    processes: int
    threads: int  # of all of them together
    feeders: int = 1  # of each process
    cores: int = 2

    @property
    def what(self) -> str:
        return (
            f"{self.cores} cores, {self.processes} processes with {self.feeders} feeding threads each, "
            f"{self.threads:,} threads"
        )


FULL = Crowd(PROCESSES, THREADS, 2, CORES)
CURVE = (
    Crowd(4, 40),
    Crowd(4, 40, cores=CORES),
    Crowd(16, 160),
    Crowd(64, 640),
    Crowd(4, 1000),
    Crowd(4, THREADS),
    FULL,
)
QUICK_CURVE = (Crowd(4, 40), Crowd(8, 400, 2, CORES))


@dataclass(frozen=True, slots=True)
class Taken:
    share: float  # of a core, in percent
    resident: int
    kernel: int  # BPF maps
    counters: int  # of operations
    made: int
    counted: int
    lost: int


def _map_bytes(pid: int) -> int:
    """What the kernel says that the agent's maps take; each is one, whoever has it open."""
    found: dict[str, int] = {}
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            words = dict(line.split(":\t", 1) for line in info.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue
        if "map_id" in words:
            found[words["map_id"]] = int(words["memlock"])
    return sum(found.values())


def _run(crowd: Crowd, seconds: float) -> Taken:
    program = jobs.compiled(jobs.WORKLOADS / "crowd.c", "-pthread")
    each = str(crowd.threads // crowd.processes)
    words = (str(crowd.processes), each, str(crowd.feeders), str(int(SETTLE_S + seconds + 1)))
    os.environ["INGERO_CPUS"] = str(crowd.cores)
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            jobs.job(program, *words, **STUB) as job,
            jobs.tracing(Path(folder), "--pid", str(job.pid), "--max-overhead", "off") as trace,
        ):
            job.start()
            time.sleep(SETTLE_S)
            before_s, before = cpu_s(trace.pid), time.monotonic()
            time.sleep(seconds)
            share = (cpu_s(trace.pid) - before_s) / (time.monotonic() - before)
            _, peak = memory_bytes(trace.pid)
            kernel = _map_bytes(trace.pid)
            said = job.answer()
            trace.stop()
            counted = trace.sql("SELECT SUM(count) FROM operations WHERE op = 'cuLaunchKernel'")[0][0]
            rows = trace.sql("SELECT COUNT(*) FROM (SELECT DISTINCT pid, op FROM operations)")[0][0]
            lost = trace.sql("SELECT COALESCE(SUM(count), 0) FROM losses")[0][0]
    finally:
        del os.environ["INGERO_CPUS"]
    return Taken(100 * share, peak, kernel, int(rows), int(said["launches"]), int(counted or 0), int(lost))


def _shown(taken: Taken) -> str:
    return (
        f"{taken.share:.1f} % of a core, {taken.resident / 1e6:,.0f} MB resident, "
        f"{taken.kernel / 1e6:,.0f} MB of maps, {taken.counters:,} pairs of process and operation"
    )


def _figures(crowd: Crowd, taken: Taken) -> list[Figure]:
    figures = [Figure(crowd.what, _shown(taken))]
    if crowd == FULL:
        mb = taken.resident / 1e6
        figures += [
            at_most("the last one: agent", taken.share, TARGET_SHARE, f"{taken.share:.1f} % of a core", " %"),
            at_most("the last one: peak resident size", mb, TARGET_MB, f"{mb:,.0f} MB", " MB"),
            Figure(
                "the last one: launches made, counted; lost",
                f"{taken.made:,}, {taken.counted:,}; {taken.lost:,}",
                "equal; 0",
                taken.made == taken.counted and not taken.lost,
            ),
        ]
    return figures


def _median_ms(work: Callable[[], object], change: Callable[[], object]) -> float:
    """Processor time, of several."""
    taken = []
    for _ in range(REPEATS):
        change()
        before = time.thread_time()
        work()
        taken.append(time.thread_time() - before)
    return 1e3 * statistics.median(taken)


def _counters(entries: int, share: float) -> Figure:
    """Working out a second from counters of which some grew."""
    book, grew = OperationBook(-1), int(entries * share)
    keys, values = np.zeros(entries, layout.OP_KEY), np.zeros(entries, layout.OP_STATS)
    keys["pid"], keys["op"] = np.arange(entries) // 96, np.arange(entries) % 12
    keys["share"] = np.arange(entries) // 12 % 8

    def change() -> None:
        values["count"][:grew] += 10
        values["sum_ns"][:grew] += 10_000
        values["slots"][:grew, 40] += 10

    ms = _median_ms(lambda: book.differences(keys, values, 1 << 30), change)
    what = f"a second from {entries:,} counters ({values.nbytes / 1e6:.1f} MB), {grew:,} of which grew"
    return Figure(what, f"{ms:.1f} ms")


def _threads(count: int) -> Figure:
    book, totals = ThreadBook(), np.zeros(count, layout.THREAD_TOTALS)
    totals["h"]["tid"], totals["h"]["start_ns"] = np.arange(1, count + 1), 1

    def change() -> None:
        totals["now_ns"] += 10**9
        totals["acc"][:, 0] += 10**9

    ms = _median_ms(lambda: book.update(totals, int(totals["now_ns"][0])), change)
    return Figure(f"a second from {count:,} threads", f"{ms:.1f} ms")


def measure(quick: bool) -> Section:
    seconds, curve = (QUICK_SECONDS, QUICK_CURVE) if quick else (SECONDS, CURVE)
    figures = [_counters(entries, share) for entries in COUNTERS for share in (1.0, 0.1)]
    figures += [_threads(count) for count in (100, 1000, THREADS)]
    figures += [figure for crowd in curve for figure in _figures(crowd, _run(crowd, seconds))]
    return Section(TITLE, tuple(figures), METHOD.format(seconds=seconds, settle=SETTLE_S), RESOLVES)


METHOD = """\
The first lines: processor time of the agent's own code on made-up readings, median of nine. The others:
`tests/workloads/crowd.c`: processes with threads of which some make rounds of ten launches, two copies, two
questions and a wait every 50 ms and the others wake once a second; a real `ingero trace --pid` of all of it
with `--max-overhead off` and a database. `INGERO_CPUS` has the agent size and read everything as on a machine
with so many cores. CPU time and peak memory of the agent from `/proc`, over {seconds:g} s that begin
{settle:g} s after the job; maps by what the kernel says of each."""

RESOLVES = """\
CPU time comes in ticks of 10 ms. What the kernel keeps for every core itself is as large as this machine's
cores: with 256 it would add about 12 KB for each. Writing rows is in it: every thread has one a second."""
