"""What a thread spends on a core inside waits is counted, and agrees with the kernel's own account."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ingero.model.layout import Bucket
from ingero.model.window import BUCKET_NAMES
from ingero.serve.answers.shares import off_cpu
from tests.ebpf.tracing import Tracer, workload

SECONDS = 2.5
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def cpu_ns(pid: int) -> int:
    """User and system time of a process, as ps shows it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_NS


def accounted(tracer: Tracer, pid: int) -> dict[str, int]:
    tracer.tick()
    rows: Any = tracer.gather("threads", pid)
    time = {name: int(rows["ns"][:, at].sum()) for at, name in enumerate(BUCKET_NAMES)}
    on_core = {"gpu_wait": int(rows["spun_ns"].sum()), "memory_wait": int(rows["reclaiming_ns"].sum())}
    away = off_cpu(time, on_core)
    assert away is not None
    return {
        "wall": sum(time.values()),
        "away": sum(away.values()),
        "gpu_wait": time[BUCKET_NAMES[Bucket.GPU_WAIT]],
        "spun": on_core["gpu_wait"],
    }


@pytest.mark.parametrize("how", ["spinning", "blocked"])
def test_time_on_a_core_is_the_cpu_time_of_the_process(tracer: Tracer, how: str) -> None:
    flags = ["--block"] if how == "blocked" else []
    with workload(
        "devices.py", "--seconds", str(SECONDS), *flags, env={**os.environ, "INGERO_STUB_DEVICES": "2"}
    ) as job:
        tracer.until_target(job.pid)
        first, before_ns = accounted(tracer, job.pid), cpu_ns(job.pid)
        job.go()
        last, after_ns = accounted(tracer, job.pid), cpu_ns(job.pid)
    grown = {name: last[name] - first[name] for name in last}
    assert grown["wall"] - grown["away"] == pytest.approx(after_ns - before_ns, rel=0.03, abs=5 * TICK_NS)
    assert grown["gpu_wait"] > 0
    if how == "spinning":
        assert grown["spun"] > 0.5 * grown["gpu_wait"]
    else:
        assert grown["spun"] < 0.05 * grown["gpu_wait"]
