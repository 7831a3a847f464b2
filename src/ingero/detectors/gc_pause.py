"""Garbage collection: Python's collector runs while the GPU waits.

Shows as   the feeding thread computing between steps, inside the collector.
Proof      the collector's own calls, counted and timed.
Not this   other work of the thread between steps (data-starvation).
Blind to   interpreters without symbols, and free-threaded builds.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import Lost
from ingero.correlate.timeline import Timeline
from ingero.detectors.detector import Case, Detector, Evidence, Line
from ingero.model.finding import Fix, Proof
from ingero.units import format_ns


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
    return f"Python's garbage collector stops {case.job.comm} for {case.ns / case.wall_ns:.0%} of the time"


def prove(case: Case) -> list[Proof]:
    count = sum(case.job.spent(each.slice.number, "gc").count for each in case.evidence)
    spent = sum(case.job.spent(each.slice.number, "gc").ns for each in case.evidence)
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
            "Freeze what was built at start, so that it is not looked through again.",
            "gc.collect(); gc.freeze()",
        ),
        Fix("Or collect by hand between epochs only.", "gc.disable()"),
    ]


DETECTOR = Detector(
    name="gc-pause",
    title="Python's garbage collector stops the job",
    needs=frozenset({"calls", "sched", "gc"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    lines=(
        Line("sample", "the collector runs", collecting=True),
        Line("ns", "the collector is called", kinds=("gc",)),
    ),
)
