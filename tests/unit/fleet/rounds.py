"""Rounds of made-up nodes."""

from __future__ import annotations

from typing import Any

from ingero.fleet.collector.peers import Member
from ingero.model.fleet import FindingHealth, GpuHealth, Health, JobHealth

NOW_NS = 1_800_000_000_000_000_000
RUN = "0123456789abcdef"


def job(pid: int = 100, **more: Any) -> JobHealth:
    known: dict[str, Any] = {
        "name": "python", "command": "abc", "job": "slurm-7", "rank": 0, "world_size": 8, "namespace": "ml",
        "bound_by": "gpu", "steps_per_s": 9.0, "usual_steps_per_s": 10.0, "gpu_busy_share": 0.8,
        "time_s": {"gpu_wait": 7.0, "host_cpu": 3.0},
    }  # fmt: skip
    return JobHealth(pid, **(known | more))


def gpu(number: int = 0, **more: Any) -> GpuHealth:
    known: dict[str, Any] = {
        "model": "H200", "uuid": "GPU-1", "busy_share": 0.8, "memory_used_bytes": 70 << 30,
        "memory_bytes": 140 << 30, "sm_clock_hz": 1.9e9, "power_w": 500.0, "temperature_c": 60.0,
        "throttled_s": 0.0,
    }  # fmt: skip
    return GpuHealth(number, **(known | more))


def finding(**more: Any) -> FindingHealth:
    known: dict[str, Any] = {
        "id": "n1:cpu-contention:100:1", "opened_ns": NOW_NS - 60, "kind": "cpu-contention",
        "severity": "HIGH", "title": "log-shipper takes the CPU", "first_ns": NOW_NS - 60,
        "last_ns": NOW_NS - 10, "confidence": 0.5, "pid": 100, "lost_share": 0.25,
        "cause": "waited 38 ms for a core", "fix": "Give it cores.",
    }  # fmt: skip
    return FindingHealth(**(known | more))


def health(node: str = "n1", number: int = 1, **more: Any) -> Health:
    known: dict[str, Any] = {
        "at_ns": NOW_NS + number * 10**10, "from_ns": NOW_NS + (number - 1) * 10**10, "cluster": "c1",
        "version": "1.2", "run": RUN, "cores_share": 0.5, "memory_share": 0.25, "targets": 1,
        "lost_events": 0, "overhead_share": 0.0078125, "agent_cpu_s": 0.125, "jobs": [job()], "gpus": [gpu()],
    }  # fmt: skip
    return Health(node=node, number=number, **(known | more))


def member(node: str, rank: int | None = 0, number: int = 1, **more: Any) -> Member:
    known: dict[str, Any] = {
        "pid": 100, "model": "H200", "job": "slurm-7", "rank": rank, "world_size": 8, "steps_per_s": 10.0,
        "usual_steps_per_s": 10.0, "time_s": {"gpu_wait": 8.0, "host_cpu": 2.0},
    }  # fmt: skip
    return Member("c1", node, (RUN, number), **(known | more))
