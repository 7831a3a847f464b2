"""How much memory a trace takes, and whether it keeps taking more."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from benchmarks import agent_cost, jobs
from benchmarks.figures import Figure, Section, at_most
from benchmarks.machine import memory_bytes
from benchmarks.soak.sample import children
from ingero.scenarios import cuda

TITLE = "Memory"
TARGET_MB = 150
SECONDS, QUICK_SECONDS = (5, 20), (3, 6)
TORCH_SECONDS, QUICK_TORCH_SECONDS = 60, 15
TORCH = Path(__file__).parent / "beside_torch.py"
NAMED = """
SELECT COUNT(DISTINCT f.function_id) FROM frame f JOIN frame_text m ON m.id = f.module_id
WHERE f.kind = 'native' AND m.text LIKE '%libtorch%'
"""


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
    figures: tuple[Figure, ...] = (
        at_most("peak resident size", peak / 1e6, TARGET_MB, f"{peak / 1e6:,.0f} MB", " MB"),
        Figure(
            f"resident after {early_s} s, after {late_s} s",
            f"{early / 1e6:,.1f} MB, {resident / 1e6:,.1f} MB",
        ),
        Figure("growth between them, per minute", f"{per_minute / 1e6:+,.2f} MB"),
    )
    figures += _beside_torch(quick)
    method = METHOD.format(rate=agent_cost.RATE, late=late_s, torch=TORCH_SECONDS)
    return Section(TITLE, figures, method, RESOLVES)


def _beside_torch(quick: bool) -> tuple[Figure, ...]:
    """Its libraries have half a million symbols; nothing where no Python with PyTorch was named."""
    python = os.environ.get("PYTHON", "")
    if not python or subprocess.run([python, "-c", "import torch"], check=False).returncode:
        return ()
    with (
        tempfile.TemporaryDirectory() as folder,
        jobs.job(python, TORCH, cuda.stub_dir()) as training,
        jobs.tracing(Path(folder), "--pid", str(training.pid)) as trace,
    ):
        training.start()
        peaks: dict[int, int] = {}
        until = time.monotonic() + (QUICK_TORCH_SECONDS if quick else TORCH_SECONDS)
        while time.monotonic() < until:
            for pid in readers(trace.pid):
                with suppress(OSError):
                    peaks[pid] = memory_bytes(pid)[1]
            time.sleep(0.1)
        resident, peak = memory_bytes(trace.pid)
        training.start()
        said = training.answer()
        trace.stop()
        (named,) = trace.sql(NAMED)[0]
    if said["failed"]:
        raise RuntimeError(f"{said['failed']} calls failed")
    what = f"beside PyTorch {said['torch']}"
    return (
        at_most(f"{what}: peak resident size", peak / 1e6, TARGET_MB, f"{peak / 1e6:,.0f} MB", " MB"),
        Figure(f"{what}: resident at the end", f"{resident / 1e6:,.0f} MB"),
        Figure(f"{what}: peak of what reads its symbols", f"{max(peaks.values(), default=0) / 1e6:,.0f} MB"),
        Figure(f"{what}: functions of libtorch in stacks", f"{named:,}"),
    )


def readers(agent: int) -> list[int]:
    """The agent's nursery is a copy of it, and so are the readers it starts."""
    ours = Path(f"/proc/{agent}/cmdline").read_bytes()
    found = []
    for pid in children(agent):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == ours:
                found.append(pid)
    return found


METHOD = """\
`ingero trace --pid` with default settings (database, no live view) for {late} s beside `hot_loop.c` at
{rate:,} launches a second; `VmRSS` and `VmHWM` of the agent from `/proc`. What Python, NumPy and SQLite
take by themselves is in it, and so is what of the ring the agent has mapped and touched. Beside
PyTorch, where `PYTHON` names an interpreter that has it: `benchmarks/beside_torch.py` trains a small model on
the CPU and calls the stub device, {torch} s; what reads symbols is a process of its own."""

RESOLVES = """\
Memory comes in pages and the allocator keeps what it once had, so a megabyte more or less is not growth.
A leak of less than some kilobytes a second cannot be seen in this time. BPF maps belong to the kernel and
are not in it."""
