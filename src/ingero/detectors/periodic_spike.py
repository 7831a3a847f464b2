"""Periodic spikes: at regular times one iteration takes far longer.

Shows as   single long iterations at equal distances in time.
Proof      the iterations themselves; the period and its regularity.
           Waits for the GPU count, too, if the job gives it nothing to do meanwhile.
Not this   spikes whose time another finding explains (such as disk-wait of a checkpoint);
           irregular ones; frequent ones (gradient accumulation, logging); waits for a GPU that
           works for this job alone, and is busy (such as playing and learning in turns).
Blind to   what happens in a spike, unless another finding tells. In jobs that only poll the GPU
           no call marks the iterations (docs/governor.md). If their launches are watched only a
           part of the time, computing is missed outside of it, and only long waits show.
           An evaluation that computes for long without a launch looks like a stall, and so does
           a job that pauses at regular intervals on purpose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ingero.correlate.loss import Lost, SliceLedger
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.detector import Case, Detector, Evidence, LineChoice
from ingero.model.finding import Fix, Proof
from ingero.units import format_ns, format_rounded

EXPLAINED = 0.3  # of the spikes' time: then another finding tells what they are
WITH_THE_GPU = {"gpu_wait", "cuda_cpu"}
MOSTLY = 0.9
SEEN_IN_PART = 0.5  # of it at least without work for the GPU, where launches were watched a part of the time


def _explained(job: Job, number: int) -> int:
    """Lost to what other findings tell; a pause for something rare is told by this one alone."""
    return next(
        (sum(lost.ns for lost in each.lost if not lost.rare) for each in job.slices if each.number == number),
        0,
    )


def _computes(job: Job, numbers: list[SliceLedger], all_ns: int) -> bool:
    """Whether the spikes can only be computing.

    A stopped process, or one that waits, has their time elsewhere; and graphs give the GPU
    work without a launch.
    """
    computing = sum(each.ns["host_cpu"] for each in numbers)
    other = sum(ns for each in numbers for name, ns in each.ns.items() if name not in WITH_THE_GPU)
    graphs = sum(job.spent(each.number, "graph").count for each in numbers)
    return computing >= (1 - EXPLAINED) * all_ns and other - computing < EXPLAINED * all_ns and not graphs


def _doing(numbers: list[SliceLedger]) -> str:
    """In what most of the time went by that gave the GPU nothing; where no gap was seen, of all but waiting
    for it."""
    sums: Counter[str] = Counter()
    for each in numbers:
        sums.update(each.gap if any(slice.gap_ns for slice in numbers) else each.ns)
    return max((name for name in sums if name not in WITH_THE_GPU), key=lambda name: sums[name])


def _own_work(timeline: Timeline, job: Job, numbers: list[SliceLedger]) -> bool:
    """Whether the GPU, which works for this job alone, is busy in the waits: then its iterations differ, as
    where playing and learning take turns."""
    told = [timeline.cards.busy_for(job.pid, each.number) for each in numbers]
    shares = [share for share in told if share is not None]
    if len(shares) < len(told) or not shares:
        return False
    waits = sum(each.ns["gpu_wait"] for each in numbers)
    total = sum(each.wall_ns for each in numbers)
    return sum(shares) / len(shares) * total >= MOSTLY * waits


def _steps_apart(job: Job, period_ns: int) -> str:
    """How many steps lie between two of them, where the steps are counted."""
    if job.pace is None:
        return ""
    steps = round(period_ns / max(job.pace.usual.step_ns, 1.0))
    return f" (every {steps} steps)" if steps > 1 else ""


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job in timeline.jobs:
        spikes = job.spikes
        if not len(spikes):
            continue
        period = int(np.diff(spikes[:, 0]).mean())
        first, last = (
            int((at - timeline.facts.origin_ns) // timeline.facts.slice_ns)
            for at in (spikes[0, 0], spikes[-1, 0])
        )
        numbers = [each for each in job.slices if first <= each.number <= last]
        total = sum(each.wall_ns for each in numbers)
        all_ns = int(spikes[:, 1].sum())
        left = all_ns - sum(_explained(job, each.number) for each in numbers)
        # An evaluation keeps the GPU busy, and a stopped process leaves it with what it had.
        idle = sum(each.gap_ns for each in numbers)
        in_part = any(job.spent(each.number, "launch").error for each in numbers)
        if job.spikes_wait or (not in_part and _computes(job, numbers, all_ns)):
            idle = max(idle, job.spikes_idle_ns)
        enough = SEEN_IN_PART if in_part else 1 - EXPLAINED
        waited = job.spikes_waited_ns
        stopped = sum(each.ns["unexplained"] for each in numbers) >= EXPLAINED * all_ns  # by a debugger, say
        for_the_gpu = idle < enough * all_ns and waited >= (1 - EXPLAINED) * all_ns and not stopped
        if left < (1 - EXPLAINED) * all_ns or (idle < enough * all_ns and not for_the_gpu) or not total:
            continue
        if for_the_gpu and _own_work(timeline, job, numbers):
            continue
        left, bucket = (min(left, waited), "gpu_wait") if for_the_gpu else (min(left, idle), _doing(numbers))
        every = _steps_apart(job, period)
        note = (
            f"{len(spikes)} stalls of {format_ns(np.median(spikes[:, 1]))}, {format_ns(period)} apart{every}"
        )
        for each in numbers:  # a spike has no slice of its own: its time is spread over the period
            ns = left * each.wall_ns // total
            yield Evidence(job, each, ns, (Lost(bucket, ns, job.pid, job.tid, job.comm),), note=note)


def headline(case: Case) -> str:
    share = case.ns / max(case.wall_ns, 1)
    return (
        f"{case.job.comm} stalls at regular intervals: {case.evidence[0].note},"
        f" {format_rounded(share)} of the time"
    )


def prove(case: Case) -> list[Proof]:
    job = case.job
    assert job.loop is not None
    of_loop = (
        f"SELECT timestamp_ns, duration_ns FROM calls WHERE pid = {job.pid} AND op = '{job.loop.name}'"
        " ORDER BY timestamp_ns"
    )
    waits = (
        f"SELECT timestamp, op, duration FROM events WHERE source = 3 AND tid = {job.tid}"
        f" AND duration >= {int(job.spikes[:, 1].min())} ORDER BY timestamp"
    )
    return [Proof(case.evidence[0].note, waits if job.spikes_wait else of_loop)]


def advise(case: Case) -> list[Fix]:
    return [
        Fix(
            "Look for what runs at that interval: a timer, cron job, checkpoint, log or metrics flush.",
            "systemctl list-timers --no-pager; crontab -l",
        ),
    ]


DETECTOR = Detector(
    name="periodic-spike",
    needs=frozenset({"calls"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    confidence=0.8,
    lines=(LineChoice("spike", "only in the long iterations"),),
)
