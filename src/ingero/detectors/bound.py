"""What limits a job now: the GPU, its own work at a line, somebody else, or that nobody asks it.

Every job that feeds a GPU gets this line, also one with which nothing is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ingero.correlate.account import Account, grown_lines
from ingero.correlate.loss import Lost
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.network_retransmits import by_network_over
from ingero.model.finding import SourceLine, Who
from ingero.model.report import Bound
from ingero.model.words import bucket_words
from ingero.units import format_clock, format_ns, format_share

# What a job does on a core, in words.
WORK = {
    "launch": "launching kernels",
    "graph": "launching graphs",
    "copy": "copying",
    "sync": "reading values back",
    "alloc": "allocating GPU memory",
    "free": "freeing GPU memory",
    "capture": "capturing graphs",
    "gc": "Python's garbage collector",
    "io": "reading and writing files",
    "asked": "waiting while others wait for its answer",
    "clock": "waiting until a time that it has set itself",
}
OWN = {"host_cpu": "its own work", "cuda_cpu": "its own work inside CUDA calls"}
BUSY = 0.75  # of the time: such a GPU is what the job waits for
WAITED_FOR = 0.10  # of the time, where the GPU does not tell: then the thread is ahead of it
# Whoever waits longer for one of these than for the GPU is not ahead of it.
ELSEWHERE = (
    "requests", "runqueue", "disk_wait", "memory_wait", "lock_wait", "peer_wait", "net_wait", "sleep",
)  # fmt: skip
MAX_WHO = 3


def bound_of(setting: Setting, account: Account, busy: float | None) -> Bound | None:
    """None where nothing was accounted."""
    if not account.rows:
        return None
    sides: dict[str, list[Lost]] = defaultdict(list)
    for row in account.rows:
        sides[_side(row, setting)].append(row)
    shares = {side: sum(row.ns for row in rows) / account.wall_ns for side, rows in sides.items()}
    by = _largest(shares, busy)
    share = shares.get(by, 0.0)
    main = max(sides.get(by, account.rows), key=lambda row: row.ns)
    by = by.partition(" ")[0]
    of_work = by in ("host_cpu", "cuda_cpu")
    return Bound(
        pid=setting.job.pid,
        comm=setting.job.comm,
        by=by,
        share=round(busy if by == GPU and busy is not None else min(1.0, share), 4),
        what=(_what(main, setting) if of_work else _by_choice(main)) or None,
        source=_source(account, main) if of_work else None,
        who=[] if by == GPU else [Who(part.pid, part.comm, part.ns, None) for part in main.who[:MAX_WHO]],
        gpu_busy_share=None if busy is None else round(busy, 4),
        steps_per_s=None,
        over_ns=account.wall_ns,
    )


def _what(main: Lost, setting: Setting) -> str:
    """Waits that come with copies to the GPU are copying."""
    return "copy" if main.what == "sync" and setting.sends else main.what


def _by_choice(main: Lost) -> str:
    return main.whose if main.whose in ("asked", "clock") else ""


def _side(row: Lost, setting: Setting) -> str:
    name = name_of(row, setting)
    if name == NOBODY:
        return "requests"
    if row.bucket == "gpu_wait" and row.what not in ("copy", "alloc", "free"):
        return GPU
    return f"{row.bucket} {row.what}".rstrip()


def _largest(shares: dict[str, float], busy: float | None) -> str:
    if busy is not None and busy >= BUSY:
        return GPU
    others_wait = max((share for side, share in shares.items() if side.startswith(ELSEWHERE)), default=0.0)
    if busy is None and shares.get(GPU, 0.0) >= WAITED_FOR and others_wait < shares[GPU]:
        return GPU
    others = {side: share for side, share in shares.items() if side != GPU} or shares
    return max(others, key=lambda side: others[side])


def _source(account: Account, main: Lost) -> SourceLine | None:
    lines = grown_lines(Account(()), account, 1.0).get((main.bucket, main.what), [])
    return lines[0].source if lines else None


def in_words(bound: Bound) -> str:
    """`the GPU, 97 % busy over the last 8 s; 18.3 steps/s`."""
    parts = [_limit(bound)]
    if bound.by != GPU and bound.gpu_busy_share is not None:
        parts[0] += f", GPU {format_share(bound.gpu_busy_share)} busy"
    parts[0] += f", over the last {format_ns(bound.over_ns)}" if bound.over_ns else ""
    if bound.steps_per_s is not None:
        parts.append(f"{bound.steps_per_s:.3g} steps/s{_before(bound)}")
    return "; ".join(parts)


def _before(bound: Bound) -> str:
    if bound.usual_steps_per_s is None or bound.since_ns is None:
        return ""
    return f" since {format_clock(bound.since_ns)} ({bound.usual_steps_per_s:.3g} before)"


def _limit(bound: Bound) -> str:
    share = format_share(bound.share)
    if bound.by == GPU:
        told = bound.gpu_busy_share is not None
        return f"the GPU, {share} busy" if told else f"the GPU, waited for {share} of the time"
    if bound.by == "requests":
        return f"requests: it waits for the next one {share} of the time"
    words = WORK.get(bound.what or "") or OWN.get(bound.by) or bucket_words(bound.by)
    if bound.source is not None:
        words += f" at {bound.source.function}() {bound.source.file}:{bound.source.line}"
    elif bound.who and bound.who[0].pid != bound.pid:
        words += f", due to {bound.who[0].comm} ({bound.who[0].pid})"
    return f"{words}, {share} of the time"


# Which problem a row of a job's account is: the name for time that was lost.
#
# A row is time in one bucket, in one kind of call, through somebody's fault. What has no
# name here is told all the same, as slowdown or gpu-idle.


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
    if row.bucket == "lock_wait" or row.whose == "clock":
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
    if known and known.serves and row.whose != "asked":
        return NOBODY
    if row.bucket == "sleep" and (not row.via or row.whose == "asked"):
        return UNNAMED  # a decision of the program's, of which only the line can tell why
    if row.via and row.bucket == "sleep" and _is_ours(row, setting):
        return "data-starvation"
    if by_network_over(setting.timeline, setting.job, row, setting.first_ns, setting.last_ns):
        return "network-retransmits"
    return "slow-peer" if row.bucket in ("peer_wait", "net_wait", "sleep") else UNNAMED
