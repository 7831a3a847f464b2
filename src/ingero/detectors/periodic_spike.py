"""Periodic spikes: every so often one iteration takes far longer, as by the clock.

Shows as   single long iterations at equal distances in time.
Proof      the iterations themselves; the period and its regularity.
Not this   spikes whose time another finding explains (disk-wait of a checkpoint, say);
           irregular ones; frequent ones (gradient accumulation, logging).
Blind to   what happens in a spike, unless another finding tells.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ingero.correlate.loss import Lost
from ingero.correlate.steps import durations
from ingero.correlate.timeline import Job, Timeline
from ingero.detectors.detector import Case, Detector, Evidence
from ingero.model.finding import Fix, Proof
from ingero.units import format_ns

LEAST_SPIKES = 4  # three distances: the fewest whose regularity says anything
LONGER = 2.0  # times the usual iteration
LEAST_NS = 20_000_000  # shorter ones are the scheduler's ticks and other noise
RARE = 0.08  # of the iterations at most: every tenth is the program's own way (accumulation, logs)
EXPLAINED = 0.3  # of the spikes' time: then another finding tells what they are
REGULAR = 0.15  # spread of the distances, of their mean


def spikes_of(timeline: Timeline, job: Job) -> NDArray[np.int64]:
    """(n, 2): start and excess of regular spikes; empty where there are none."""
    none = np.zeros((0, 2), np.int64)
    if job.loop is None:
        return none
    steps = durations(timeline.facts.marks(job.pid, job.loop.op))
    cold_ns = max((timeline.facts.at_ns(each.number + 1) for each in job.slices if each.cold), default=0)
    steps = steps[steps[:, 0] >= cold_ns]
    if len(steps) < 20:
        return none
    usual = int(np.median(steps[:, 1]))
    long = (steps[:, 1] > LONGER * usual) & (steps[:, 1] - usual > LEAST_NS)
    spikes = steps[long]
    if len(spikes) < LEAST_SPIKES or len(spikes) > RARE * len(steps):
        return none
    apart = np.diff(spikes[:, 0])
    if apart.std() > REGULAR * apart.mean():
        return none
    return np.stack([spikes[:, 0], spikes[:, 1] - usual], axis=1)


def _explained(job: Job, number: int) -> int:
    return next((sum(lost.ns for lost in each.lost) for each in job.slices if each.number == number), 0)


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job in timeline.jobs:
        spikes = spikes_of(timeline, job)
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
        if left < (1 - EXPLAINED) * all_ns or not total:
            continue
        note = f"{len(spikes)} spikes of {format_ns(np.median(spikes[:, 1]))}, {format_ns(period)} apart"
        for each in numbers:  # a spike has no slice of its own: its time is spread over the period
            ns = left * each.wall_ns // total
            yield Evidence(job, each, ns, (Lost("unexplained", ns, job.pid, job.tid, job.comm),), note=note)


def headline(case: Case) -> str:
    return f"{case.job.comm} stalls at regular intervals: {case.evidence[0].note}"


def prove(case: Case) -> list[Proof]:
    loop = case.job.loop
    assert loop is not None
    return [
        Proof(
            case.evidence[0].note,
            f"SELECT timestamp_ns, duration_ns FROM calls WHERE pid = {case.job.pid} AND op = '{loop.name}'"
            " ORDER BY timestamp_ns",
        )
    ]


def advise(case: Case) -> list[Fix]:
    return [
        Fix(
            "Look for what runs at that interval: a timer, cron job, checkpoint, log or metrics flush.",
            "systemctl list-timers; crontab -l",
        ),
    ]


DETECTOR = Detector(
    name="periodic-spike",
    title="The job stalls at regular intervals",
    needs=frozenset({"calls"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    confidence=0.8,
)
