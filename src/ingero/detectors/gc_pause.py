"""Garbage collection: Python's collector runs while the GPU waits.

Shows as   the feeding thread computing between steps, inside the collector.
Proof      the collector's own calls, counted and timed; where the interpreter has no symbol
           to probe, samples of the thread that see the collector at work.
Not this   other work of the thread between steps (data-starvation).
Blind to   interpreters without symbols whose frames cannot be read, and free-threaded builds.
           A thread may make so many objects that it keeps both the lock and the collector busy: in a
           job that only polls the GPU, this may come first, before the lock (gil-contention).
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import Lost
from ingero.correlate.timeline import Timeline
from ingero.detectors.detector import Case, Detector, Evidence, LineChoice
from ingero.model.finding import Fix, Proof
from ingero.model.sites import SAMPLE_NS
from ingero.units import format_ns, format_rounded


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job in timeline.jobs:
        for each in job.slices:
            collected = job.spent(each.number, "gc")
            # What the GPU did not hide: collections between steps, or beyond the wait for it.
            ns = max(min(collected.ns, each.gap["host_cpu"]), collected.ns - each.ns["gpu_wait"])
            if ns > 0:
                lost = Lost("host_cpu", ns, job.pid, job.tid, job.comm)
                yield Evidence(job, each, ns, (lost,))


def headline(case: Case) -> str:
    share = format_rounded(case.ns / case.wall_ns)
    return f"Python's garbage collector stops {case.job.comm} for {share} of the time"


def prove(case: Case) -> list[Proof]:
    count = sum(case.job.spent(each.slice.number, "gc").count for each in case.evidence)
    spent = sum(case.job.spent(each.slice.number, "gc").ns for each in case.evidence)
    if not count:
        return [
            Proof(
                f"the collector was running in {round(spent / SAMPLE_NS)} samples of the thread,"
                f" {format_ns(spent)} of its time",
                f"SELECT SUM(count) FROM samples WHERE pid = {case.job.pid} AND tid = {case.job.tid}"
                f" AND collecting AND {case.span_sql}",
            )
        ]
    return [
        Proof(
            f"{count} collections took {format_ns(spent)}, {format_ns(spent / max(count, 1))} each",
            f"SELECT SUM(count), SUM(sum_ns) FROM operations WHERE pid = {case.job.pid} AND layer = 'python'"
            f" AND {case.span_sql}",
        )
    ]


def advise(case: Case) -> list[Fix]:
    return [
        Fix(
            "Freeze the objects built at start-up, so that the collector skips them.",
            code="gc.collect(); gc.freeze()",
        ),
        Fix("Or switch the collector off, and collect only between epochs.", code="gc.disable()"),
    ]


DETECTOR = Detector(
    name="gc-pause",
    needs=frozenset({"calls", "sched", "gc"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    lines=(
        LineChoice("sample", "the collector runs", collecting=True),
        LineChoice("ns", "the collector is called", kinds=("gc",)),
    ),
)
