"""How much memory a trace takes, and whether it keeps taking more."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks import agent_cost, jobs
from benchmarks.figures import Figure, Section, at_most
from benchmarks.machine import memory_bytes

TITLE = "Memory"
TARGET_MB = 150
SECONDS, QUICK_SECONDS = (5, 20), (3, 6)


def measure(quick: bool) -> Section:
    early_s, late_s = QUICK_SECONDS if quick else SECONDS
    program = jobs.compiled(jobs.WORKLOADS / "hot_loop.c")
    launches = str(agent_cost.RATE * (late_s + 2))
    with (
        tempfile.TemporaryDirectory() as folder,
        jobs.job(program, launches, str(agent_cost.RATE), **agent_cost.STUB) as loop,
        jobs.tracing(Path(folder), "--pid", str(loop.pid)) as trace,
    ):
        loop.start()
        time.sleep(early_s)
        early, _ = memory_bytes(trace.pid)
        time.sleep(late_s - early_s)
        resident, peak = memory_bytes(trace.pid)
        trace.stop()
    per_minute = (resident - early) / (late_s - early_s) * 60
    figures = (
        at_most("peak resident size", peak / 1e6, TARGET_MB, f"{peak / 1e6:,.0f} MB", " MB"),
        Figure(
            f"resident after {early_s} s, after {late_s} s",
            f"{early / 1e6:,.1f} MB, {resident / 1e6:,.1f} MB",
        ),
        Figure("growth between them, per minute", f"{per_minute / 1e6:+,.2f} MB"),
    )
    return Section(TITLE, figures, METHOD.format(rate=agent_cost.RATE, late=late_s), RESOLVES)


METHOD = """\
`ingero trace --pid` with default settings (database, no live view) for {late} s beside `hot_loop.c` at
{rate:,} launches a second; `VmRSS` and `VmHWM` of the agent from `/proc`. What Python, NumPy and SQLite
take by themselves is in it, and so is what of the ring the agent has mapped and touched."""

RESOLVES = """\
Memory comes in pages and the allocator keeps what it once had, so a megabyte more or less is not growth.
A leak of less than some kilobytes a second cannot be seen in this time. BPF maps belong to the kernel and
are not in it."""
