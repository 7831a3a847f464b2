"""By what a node is compared with its peers: the same words for the collector, which finds the limits, and
for the node, which holds itself to them while the collector is away."""

from __future__ import annotations

from collections.abc import Mapping

from ingero.model.fleet import Health, JobHealth

ROUNDS = 3  # beyond a limit, to begin to straggle; well within it, to end
WAITING = frozenset({"gpu_wait", "net_wait", "sleep", "unexplained", "lost"})
HIGH_IS_BAD = frozenset({"own-time"})


def is_beyond(measure: str, value: float, limit: float) -> bool:
    """On the bad side of it."""
    return value > limit if measure in HIGH_IS_BAD else value < limit


def is_well_within(measure: str, value: float, limit: float, median: float) -> bool:
    return not is_beyond(measure, value, (limit + median) / 2)


def own_share(time_s: Mapping[str, float]) -> float | None:
    """Part of its time a thread spent neither waiting for the GPU nor for others; None: none was told."""
    total = sum(time_s.values())
    if total <= 0:
        return None
    return 1 - sum(seconds for bucket, seconds in time_s.items() if bucket in WAITING) / total


def is_ranked(rank: int | None, world_size: int | None, job: str) -> bool:
    """Compared with the ranks of its job; else by how it does against its own past."""
    return rank is not None and (world_size or 0) > 1 and bool(job)


def measured(health: Health, measure: str, pid: int | None, gpu: int | None) -> float | None:
    """The same of a round as the collector makes of it; None: it is not there (any more)."""
    if measure == "clock":
        return next((each.sm_clock_hz for each in health.gpus if each.gpu == gpu), None)
    job = next((each for each in health.jobs if each.pid == pid), None)
    if job is None:
        return None
    return own_share(job.time_s) if measure == "own-time" else _pace(job)


def _pace(job: JobHealth) -> float | None:
    return job.steps_per_s if is_ranked(job.rank, job.world_size, job.job or job.command) else job.pace_share
