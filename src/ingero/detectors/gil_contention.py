"""GIL contention: another Python thread of the process holds the interpreter's lock.

Shows as   the feeding thread blocked on the interpreter's lock while another computes.
Proof      futex waits whose address lies in the interpreter's own lock.
Not this   any other lock; a thread that waits for the GPU with the lock released.
Blind to   free-threaded builds, which have no such lock; sub-interpreters' own locks;
           a GPU that had nothing to do between launches, if the job still waits for it at their end.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.timeline import Timeline
from ingero.detectors import proofs
from ingero.detectors.detector import Case, Detector, Evidence, LineChoice
from ingero.model.finding import Fix, Proof
from ingero.units import format_ns


def find(timeline: Timeline) -> Iterator[Evidence]:
    for job, each, found in timeline.lost("lock_wait"):
        causes = tuple(lost for lost in found if lost.gil)
        if causes:
            yield Evidence(job, each, sum(lost.ns for lost in causes), causes)


def headline(case: Case) -> str:
    holder = f"thread {case.who[0].comm} (tid {case.who[0].pid})" if case.who else "another Python thread"
    return f"{holder} holds the GIL while {case.job.comm} wants to feed the GPU"


def prove(case: Case) -> list[Proof]:
    held = Proof(
        f"{format_ns(case.ns)} spent waiting for the interpreter's lock while the GPU had nothing to do",
        f"SELECT SUM(ns) FROM thread_time WHERE tid = {case.job.tid} AND bucket = 'lock_wait'"
        f" AND {case.span_sql}",
    )
    return [held, *proofs.waits(case)]


def advise(case: Case) -> list[Fix]:
    return [
        Fix("Move that thread's work into a separate process (multiprocessing, DataLoader workers)."),
        Fix("Or into code that releases the lock (NumPy, torch operations on whole batches)."),
    ]


DETECTOR = Detector(
    name="gil-contention",
    needs=frozenset({"calls", "sched", "gil"}),
    find=find,
    headline=headline,
    prove=prove,
    advise=advise,
    lines=(
        LineChoice("sample", "the lock's holder computes", of="holder"),
        LineChoice("wait", "waited for", of="feeder", buckets=("lock_wait",), gil=True),
    ),
)
