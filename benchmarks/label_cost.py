"""What saying a label costs the job, and hearing a thousand a second the agent."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import jobs
from benchmarks.figures import Figure, Section, at_most
from benchmarks.machine import cpu_s

TITLE = "Labels of jobs"
RATE = 1_000
SECONDS, QUICK_SECONDS = 10, 3
CALL_TARGET_US, AGENT_TARGET_SHARE = 20.0, 5.0

METHOD = """\
`benchmarks/send_labels.py` says `annotate(step=n)` {rate:,} times a second for {seconds} s, asleep in
between, and times each call: without an agent, and with a real `ingero trace --pid` of it that records. CPU
time of the agent is read from `/proc` over that time, and over half as long without a label. What was stored
and dropped is in the recording."""

RESOLVES = """\
CPU time comes in ticks of 10 ms. A call after a sleep is dearer than one in a busy loop: caches are cold,
the core may have been idle. Another job on the machine shows in p99 first."""


def _cpu_share(pid: int, seconds: float) -> float:
    before, begin = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_s(pid) - before) / (time.monotonic() - begin)


def measure(quick: bool) -> Section:
    seconds = QUICK_SECONDS if quick else SECONDS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = {"INGERO_RUN_DIR": str(folder / "run")}
        with jobs.job(sys.executable, jobs.HERE / "send_labels.py", str(RATE), **run) as sender:
            sender.start(str(seconds / 2))
            alone = sender.answer()
            with jobs.tracing(folder, "--pid", str(sender.pid)) as trace:
                time.sleep(1.5)
                idle = _cpu_share(trace.pid, seconds / 2)
                before, begin = cpu_s(trace.pid), time.monotonic()
                sender.start(str(seconds))
                heard = sender.answer()
                busy = 100 * (cpu_s(trace.pid) - before) / (time.monotonic() - begin)
                trace.stop()
                stored = int(trace.sql("SELECT COUNT(*) FROM annotations")[0][0])
                lost = dict(trace.sql("SELECT reason, SUM(count) FROM losses GROUP BY 1"))
    call_us = heard["p50_ns"] / 1e3
    shown = f"{call_us:.1f} µs, p99 {heard['p99_ns'] / 1e3:.1f} µs"
    rate = heard["said"] / heard["seconds"]
    told = sum(count for reason, count in lost.items() if reason.startswith("annotation_"))
    figures = (
        at_most("saying a label, with an agent: median", call_us, CALL_TARGET_US, shown, " µs"),
        Figure("without an agent", f"{alone['p50_ns'] / 1e3:.1f} µs, p99 {alone['p99_ns'] / 1e3:.1f} µs"),
        at_most(
            f"agent at {rate:,.0f} labels/s, above its idling", busy - idle, AGENT_TARGET_SHARE,
            f"{busy - idle:.1f} % of a core (idle {idle:.1f} %)", " %",
        ),
        Figure(
            "labels said; stored; dropped and counted as such", f"{heard['said']:,}; {stored:,}; {told:,}",
            "nothing uncounted", stored + told == heard["said"],
        ),
        Figure("queue of the socket (net.unix.max_dgram_qlen)", _queue()),
    )  # fmt: skip
    return Section(TITLE, figures, METHOD.format(rate=RATE, seconds=seconds), RESOLVES)


def _queue() -> str:
    path = Path("/proc/sys/net/unix/max_dgram_qlen")
    return f"{path.read_text().strip()} messages" if os.access(path, os.R_OK) else "not known"
