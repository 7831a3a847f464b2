"""What the agent takes at 100,000 launches a second, and what the launches take.

The program counts its own launches; the recording must have exactly as many. Its
loop waits for the next turn by spinning, so it fills one core and the agent has
the others.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import jobs
from benchmarks.figures import Figure, Section, at_most
from benchmarks.machine import cpu_s

TITLE = "Agent at 100,000 launches a second"
RATE = 100_000
SECONDS, QUICK_SECONDS = 10, 3
TARGET_SHARE = 5.0
STUB = {"INGERO_STUB_KERNEL_US": "0.1"}  # the device is never the limit
LAUNCH = "cuLaunchKernel"


@dataclass(frozen=True, slots=True)
class Run:
    """One traced run of the loop."""

    said: dict[str, Any]
    counted: int
    lost: int
    busy_share: float
    idle_share: float
    window_share: float  # as the recording itself has it
    rows: int
    grown_bytes: int

    @property
    def call_ns(self) -> float:
        return float(self.said["inside_ns"] / self.said["launches"])

    @property
    def seconds(self) -> float:
        return float(self.said["took_ns"] / 1e9)


def run_loop(program: Path, seconds: float, *words: str) -> Run:
    """The loop under a real trace."""
    with (
        tempfile.TemporaryDirectory() as folder,
        jobs.job(program, str(int(RATE * seconds)), str(RATE), **STUB) as loop,
        jobs.tracing(Path(folder), "--pid", str(loop.pid), "--max-overhead", "off", *words) as trace,
    ):
        time.sleep(1.2)
        idle = _share_over(trace.pid, seconds / 3)
        before_bytes = _database_bytes(trace)
        before_s, before = cpu_s(trace.pid), time.monotonic()
        loop.start()
        said = loop.answer()
        busy = (cpu_s(trace.pid) - before_s) / (time.monotonic() - before)
        trace.stop()
        return Run(
            said,
            counted=int(trace.sql("SELECT SUM(count) FROM operations WHERE op = ?", LAUNCH)[0][0] or 0),
            lost=int(trace.sql("SELECT COALESCE(SUM(count), 0) FROM losses")[0][0]),
            busy_share=busy * 100,
            idle_share=idle * 100,
            window_share=_window_share(trace),
            rows=int(trace.sql("SELECT COUNT(*) FROM event")[0][0]),
            grown_bytes=_database_bytes(trace) - before_bytes,
        )


def _share_over(pid: int, seconds: float) -> float:
    before = cpu_s(pid)
    time.sleep(seconds)
    return (cpu_s(pid) - before) / seconds


def _window_share(trace: jobs.Trace) -> float:
    """Of the windows in which the loop ran at full rate."""
    cpu_ns, ns = trace.sql(
        "SELECT SUM(agent_cpu_ns), SUM(end_ns - start_ns) FROM window WHERE hits > ?", RATE * 0.9
    )[0]
    return 100.0 * cpu_ns / ns if ns else 0.0


def _database_bytes(trace: jobs.Trace) -> int:
    """Pages in use, wherever they lie: the file itself grows only when the log is folded in."""
    pages, size = trace.sql("SELECT p.page_count, s.page_size FROM pragma_page_count p, pragma_page_size s")[
        0
    ]
    return int(pages * size)


def untraced_call_ns(program: Path, seconds: float) -> float:
    with jobs.job(program, str(int(RATE * seconds)), str(RATE), **STUB) as loop:
        loop.start()
        said = loop.answer()
        return float(said["inside_ns"] / said["launches"])


def _figures(run: Run, name: str, target: bool) -> list[Figure]:
    launches = int(run.said["launches"])
    cpu = f"{run.busy_share:.1f} % of a core"
    share = f"{name}: agent at {launches / run.seconds:,.0f} launches/s"
    return [
        at_most(share, run.busy_share, TARGET_SHARE, cpu, " %") if target else Figure(share, cpu),
        Figure(f"{name}: the same by its own account, whole windows", f"{run.window_share:.1f} %"),
        Figure(f"{name}: events dropped", f"{run.lost:,}", "0", run.lost == 0),
        Figure(
            f"{name}: launches made, counted",
            f"{launches:,}, {run.counted:,}",
            "equal",
            launches == run.counted,
        ),
        Figure(f"{name}: rows stored per second", f"{run.rows / run.seconds:,.0f}"),
    ]


METHOD = """\
`tests/workloads/hot_loop.c` calls `cudaLaunchKernel` of the stub device {rate:,} times a second for
{seconds} s; a real `ingero trace --pid` with `--max-overhead off` and a database traces it. CPU time of
the agent is read from `/proc` when the loop starts and when it ends; start-up is not part of it. The
program says how many launches it made, the database how many it has. The time of a launch is what the
program itself measures around each call, untraced before and after, traced in between."""

RESOLVES = """\
CPU time comes in ticks of 10 ms: {tick:.1f} % of a core over {seconds} s. A launch of the stub is shorter
than a real one (2 to 8 µs), so the ratio of traced to untraced launches is worse here than on a GPU; the
nanoseconds added are what carries over. Two single runs are compared: differences of a few percent
between runs mean nothing."""


def measure(quick: bool) -> Section:
    seconds = QUICK_SECONDS if quick else SECONDS
    program = jobs.compiled(jobs.WORKLOADS / "hot_loop.c")
    before = untraced_call_ns(program, seconds / 4)
    default = run_loop(program, seconds)
    between = untraced_call_ns(program, seconds / 4)
    everything = run_loop(program, seconds, "--record-all")
    after = untraced_call_ns(program, seconds / 4)
    bare = sorted((before, between, after))[1]
    figures = [
        *_figures(default, "default", target=True),
        Figure("default: agent with the program idle", f"{default.idle_share:.1f} % of a core"),
        *_figures(everything, "--record-all", target=False),
        Figure("launch as the program sees it, ns: untraced", f"{before:,.0f}, {between:,.0f}, {after:,.0f}"),
        *(
            Figure(
                f"{name}: launch, ns; added; of the thread's time at this rate",
                f"{run.call_ns:,.0f}; {run.call_ns - bare:,.0f}; {(run.call_ns - bare) * RATE / 1e7:.1f} %",
            )
            for name, run in (("default", default), ("--record-all", everything))
        ),
        _growth(default),
    ]
    return Section(
        TITLE,
        tuple(figures),
        METHOD.format(rate=RATE, seconds=seconds),
        RESOLVES.format(tick=100 / os.sysconf("SC_CLK_TCK") / seconds, seconds=seconds),
    )


def _growth(run: Run) -> Figure:
    per_hour = run.grown_bytes / run.seconds * 3600
    return Figure("default: database growth, extrapolated to an hour", f"{per_hour / 1e6:,.1f} MB")
