"""Underutilised: the GPU idles most of the time with nothing wrong, because there is too little to do.

Shows as   a GPU that no process keeps busy, while the thread that feeds it sleeps on purpose
           or, in a server, waits to be asked.
Proof      the GPU's own utilisation, and where the feeding thread was meanwhile.
Not this   a job that would go on if something let it: data-starvation, launch-bound,
           cpu-contention and the others name what keeps it; a GPU that others keep busy.
Blind to   kernels that fill only a part of the GPU: a GPU counts as busy while any runs.
Severity   LOW: no time is lost, only money.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import SliceLedger
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.detector import Detector, State
from ingero.model.finding import Fix, Proof, Severity
from ingero.units import format_ns, format_rounded

BUSY_AT_MOST = 0.30  # of the time: a GPU that is busy for more has work
CHOSEN_AT_LEAST = 0.50  # of the wall time: asleep, or not asked
LEAST_SLICES = 5  # ten seconds: a pause for a coffee is none of ours


def _chosen_ns(timeline: Timeline, job: Job, each: SliceLedger) -> int:
    """Time in which the job itself wanted nothing."""
    process = timeline.facts.processes.get(job.pid)
    buckets = ("sleep", "net_wait", "peer_wait") if process and process.serves else ("sleep",)
    return sum(each.ns[name] for name in buckets)


def _busy_share(timeline: Timeline, job: Job, number: int) -> float | None:
    """Of the busiest of its GPUs; None: not known."""
    shares = [float(row["gpu_share"]) for row in timeline.cards.during(number, job.pid)]
    return max(shares) if shares and all(share == share for share in shares) else None


def find(timeline: Timeline) -> Iterator[State]:
    for job in timeline.jobs if timeline.cards.watched else ():
        known = [
            (each, share)
            for each in job.slices
            if not each.cold and (share := _busy_share(timeline, job, each.number)) is not None
        ]
        wall_ns = sum(each.wall_ns for each, _ in known)
        if len(known) < LEAST_SLICES or not wall_ns:
            continue
        busy = sum(share * each.wall_ns for each, share in known) / wall_ns
        chosen_ns = sum(_chosen_ns(timeline, job, each) for each, _ in known)
        if busy <= BUSY_AT_MOST and chosen_ns >= CHOSEN_AT_LEAST * wall_ns:
            yield _state(timeline, job, [each for each, _ in known], busy, chosen_ns, wall_ns)


def _state(
    timeline: Timeline, job: Job, slices: list[SliceLedger], busy: float, chosen_ns: int, wall_ns: int
) -> State:
    first = max(timeline.facts.at_ns(slices[0].number), timeline.facts.from_ns)
    last = min(timeline.facts.at_ns(slices[-1].number + 1), timeline.facts.to_ns)
    cards = ", ".join(str(gpu_id) for gpu_id in sorted(timeline.cards.of(job.pid)))
    span = f"timestamp_ns >= {first} AND timestamp_ns < {last}"
    return State(
        job.pid,
        job.comm,
        f"{job.comm} leaves its GPU idle {format_rounded(1 - busy)} of the time: it has too little to do",
        first,
        last,
        (
            Proof(
                f"GPU {cards} was busy {format_rounded(busy)} of {format_ns(wall_ns)}",
                f"SELECT gpu_id, AVG(gpu_share) FROM gpu_samples WHERE gpu_id IN ({cards}) AND {span}"
                " GROUP BY gpu_id",
            ),
            Proof(
                f"the feeding thread slept, or waited for requests, for {format_ns(chosen_ns)}",
                f"SELECT bucket, SUM(ns) FROM thread_time WHERE tid = {job.tid}"
                f" AND bucket_start_ns >= {first} AND bucket_start_ns < {last} GROUP BY bucket",
            ),
        ),
        Severity.LOW,
        job.tid,
        fixes=(
            Fix("Run several such jobs on the GPU at once.", "nvidia-cuda-mps-control -d"),
            Fix("Or gather requests into larger batches, or use a smaller GPU."),
        ),
        confidence=0.8,
    )


DETECTOR = Detector(
    name="underutilised",
    needs=frozenset({"calls", "gpu", "sched"}),
    find=find,
    severity="LOW",
)
