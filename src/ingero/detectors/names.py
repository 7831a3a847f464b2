"""Which problem a row of a job's account is: the name for time that was lost.

A row is time in one bucket, in one kind of call, through somebody's fault. What has no
name here is told all the same, as slowdown or gpu-idle.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingero.correlate.loss import Lost
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.network_retransmits import by_network_over

GPU = "gpu"  # the GPU works: nothing is lost by waiting for it
NOBODY = "nobody"  # nobody wants anything of the GPU: no loss
UNNAMED = ""

CORES = {
    "quota": "cpu-throttled",
    "neighbours": "noisy-neighbour",
    "others": "cpu-contention",
    "unknown": "cpu-contention",
}
ON_CORE = {
    "": "data-starvation",
    "io": "disk-wait",
    "gc": "gc-pause",
    "copy": "copy-bound",
    "launch": "launch-bound",
    "graph": "launch-bound",
    "sync": "sync-heavy",
    "alloc": "alloc-churn",
    "free": "alloc-churn",
    "capture": "graph-trouble",
}
WAITS = {"disk_wait": "disk-wait", "memory_wait": "memory-pressure"}
FOR_THE_GPU = {"copy": "copy-bound", "alloc": "alloc-churn", "free": "alloc-churn"}
ROW_KINDS = frozenset({
    *CORES.values(), *ON_CORE.values(), *WAITS.values(), "gil-contention", "slow-peer", "network-retransmits",
}) - {"graph-trouble"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setting:
    """What a name depends on besides the row itself."""

    timeline: Timeline
    job: Job
    waits_often: bool  # for the GPU, several times a step, or oftener than usual
    sends: bool  # these waits are for copies to the GPU: each of those from pageable memory has one
    first_ns: int
    last_ns: int


def name_of(row: Lost, setting: Setting) -> str:
    if row.whose in ("demand", "agent"):
        return NOBODY
    if row.bucket == "runqueue":
        return _of_core(row, setting.job)
    if row.bucket == "gpu_wait":
        often = _waiting(setting) if setting.waits_often else GPU
        return FOR_THE_GPU.get(row.what, often) if not row.via or row.whose == "feeder" else GPU
    if row.bucket in ("host_cpu", "cuda_cpu"):
        return _of_work(row, setting)
    if row.bucket in WAITS:
        return WAITS[row.bucket]
    if row.bucket == "lock_wait":
        return "gil-contention" if row.gil else UNNAMED
    return _of_waiting(row, setting)


def _of_core(row: Lost, job: Job) -> str:
    if row.whose == "own":
        return "data-starvation" if row.who and row.who[0].pid != job.pid else "cpu-contention"
    return CORES.get(row.whose, UNNAMED)


def _is_ours(row: Lost, setting: Setting) -> bool:
    return setting.timeline.family.works_for(row.pid, setting.job.pid)


def _of_work(row: Lost, setting: Setting) -> str:
    if row.via and row.whose != "feeder":
        return "data-starvation" if _is_ours(row, setting) else "slow-peer"
    if row.what == "sync":
        return _waiting(setting)
    if row.bucket == "cuda_cpu" and not row.what:
        return UNNAMED  # in calls that are no work of the program's
    return ON_CORE.get(row.what, UNNAMED)


def _waiting(setting: Setting) -> str:
    return ON_CORE["copy" if setting.sends else "sync"]


def _of_waiting(row: Lost, setting: Setting) -> str:
    """Asleep, or waiting for an answer; a server waits to be asked, whatever its clients do meanwhile."""
    known = setting.timeline.facts.processes.get(setting.job.pid)
    if known and known.serves:
        return NOBODY
    if row.bucket == "sleep" and not row.via:
        return UNNAMED  # a decision of the program's, of which only the line can tell why
    if row.via and row.bucket == "sleep" and _is_ours(row, setting):
        return "data-starvation"
    if by_network_over(setting.timeline, setting.job, row, setting.first_ns, setting.last_ns):
        return "network-retransmits"
    return "slow-peer" if row.bucket in ("peer_wait", "net_wait", "sleep") else UNNAMED
