"""How long `explain` takes, and what it needs, for an hour in which several jobs ran.

    python -m benchmarks.several_jobs [JOBS] [SECONDS]

Every job is a copy of the made-up one under numbers of its own, with its worker, its hogs and its waits.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.large_database import HOUR_S, build, kept, template
from ingero.model.window import Process, Records, Window

APART = 100_000  # numbers of one job to those of the next
NUMBERS = ("pid", "tid", "victim_pid", "victim_tid", "waker_pid", "waker_tid")
TABLES = ("operations", "threads", "culprits", "wakers")


def of_several(window: Window, jobs: int) -> Window:
    tables: dict[str, Any] = {
        name: np.concatenate([_renumbered(getattr(window, name), job * APART) for job in range(jobs)])
        for name in TABLES
    }
    processes = [_process(each, job * APART) for job in range(jobs) for each in window.processes]
    return replace(window, **tables, processes=processes)


def _renumbered(rows: Records, by: int) -> Records:
    made = rows.copy()
    for name in set(NUMBERS) & set(made.dtype.names or ()):
        made[name] = np.where(made[name] > 0, made[name] + by, made[name])
    return made


def _process(known: Process, by: int) -> Process:
    parent = known.parent_pid
    return replace(known, pid=known.pid + by, parent_pid=parent + by if parent and parent > 1 else parent)


def measure(db: Path) -> tuple[float, float, float]:
    """Seconds, seconds on a core and MB of one `explain --json`."""
    words = [sys.executable, "-m", "benchmarks.peak_memory", sys.executable, "-m", "ingero", "explain",
             "--db", str(db), "--json"]  # fmt: skip
    began, used = time.perf_counter(), _on_core_s()
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return time.perf_counter() - began, _on_core_s() - used, int(told) / 1024


def _on_core_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(words: Sequence[str]) -> int:
    jobs, seconds = (int(words[at]) if len(words) > at else usual for at, usual in ((0, 4), (1, HOUR_S)))
    windows = [of_several(window, jobs) for window in template(time.monotonic_ns())]
    path, _ = kept(
        f"jobs-{jobs}-{seconds}", lambda path: build(path, windows, lambda count: count >= seconds)
    )
    took = sorted(measure(path) for _ in range(3))
    print(
        f"{jobs} jobs, {seconds} s: {took[1][0]:.2f} s ({took[0][0]:.2f} to {took[2][0]:.2f}),"
        f" {min(each[1] for each in took):.2f} s on a core, {max(each[2] for each in took):.0f} MB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
