"""Minutes of tracing a busy job: nothing lost, memory flat, how much is written."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import jobs
from benchmarks.gpu.around import JOBS
from benchmarks.gpu.truth import explained
from benchmarks.machine import cpu_s

WORK = "small-training"
CORES = 4


@dataclass(frozen=True, slots=True)
class Long:
    """What a long trace took; memory and size once every ten seconds."""

    seconds: float
    rss_mb: list[float]
    db_mb: list[float]
    agent_share: float
    calls: int
    losses: dict[str, int]
    findings: list[str]
    own_share: float

    @property
    def growth_mb_per_hour(self) -> float:
        half = len(self.db_mb) // 2
        return (self.db_mb[-1] - self.db_mb[half]) / (len(self.db_mb) - 1 - half) * 360


def run(folder: Path, seconds: float) -> Long:
    folder.mkdir(parents=True, exist_ok=True)
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[-CORES:]))
    rss, size = [], []
    with (
        jobs.job("taskset", "-c", cores, sys.executable, JOBS / "paced.py", WORK, folder / "book") as job,
        jobs.tracing(folder, "--pid", str(job.pid)) as trace,
    ):
        before, began = cpu_s(trace.pid), time.monotonic()
        while time.monotonic() - began < seconds:
            time.sleep(min(10.0, seconds / 4))
            rss.append(_rss_mb(trace.pid))
            size.append(sum(file.stat().st_size for file in folder.glob("trace.db*")) / 1e6)
        share = (cpu_s(trace.pid) - before) / (time.monotonic() - began)
        trace.stop()
    report = explained(trace.db, folder)
    found = Long(
        seconds,
        rss,
        size,
        share,
        int(trace.sql("SELECT SUM(count) FROM operations")[0][0] or 0),
        {each["reason"]: each["count"] for each in report["losses"]},
        [f"{each['kind']} {each['severity']}" for each in report["findings"]],
        float(report["overhead"]["share"] or 0),
    )
    (folder / "long.json").write_text(json.dumps(asdict(found)))
    print(f"long: {found}, {found.growth_mb_per_hour:.1f} MB an hour", flush=True)
    return found


def _rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1e3
    return 0.0
