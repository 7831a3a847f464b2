"""Collective imbalance: ranks wait for each other in turns, because their work is uneven.

Shows as   waiting at collectives, a different rank last each time.
Proof      arrival times of all ranks: the waiting adds up, no rank causes most of it.
Not this   one rank that is always last (nccl-straggler).
Blind to   ranks on other nodes, unless their recordings are merged.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.loss import Lost
from ingero.correlate.timeline import Timeline
from ingero.detectors.detector import Case, Detector, Evidence, LineChoice
from ingero.detectors.nccl_straggler import LEAST_ROUNDS, rounds_of, straggler, waited
from ingero.model.finding import Fix, Proof
from ingero.units import format_ns


def find(timeline: Timeline) -> Iterator[Evidence]:
    for rounds in rounds_of(timeline).values():
        if not timeline.jobs or len(rounds) < LEAST_ROUNDS or straggler(rounds) is not None:
            continue
        sums = {job.pid: waited(timeline, rounds, job.pid) for job in timeline.jobs}
        victim = max(timeline.jobs, key=lambda job: sum(sums[job.pid].values()))
        for each in victim.slices:
            ns = min(sums[victim.pid].get(each.number, 0), each.wall_ns)
            if ns:
                yield Evidence(victim, each, ns, (Lost("gpu_wait", ns, victim.pid, victim.tid, victim.comm),))


def prove(case: Case) -> list[Proof]:
    return [
        Proof(
            f"{format_ns(case.ns)} of waiting at collectives, no rank last in most of them",
            "SELECT rank, pid, SUM(wait_ns), COUNT(*) FROM nccl_events "
            "WHERE wait_ns IS NOT NULL GROUP BY rank, pid",
        )
    ]


DETECTOR = Detector(
    name="collective-imbalance",
    needs=frozenset({"calls", "nccl"}),
    find=find,
    headline=lambda case: f"Ranks wait for each other in turns: {case.job.comm} most",
    prove=prove,
    advise=lambda case: [
        Fix("Even out the work: bucket samples by length, drop_last, equal shards."),
        Fix("Synchronise less often: accumulate gradients.", code="with model.no_sync(): ..."),
    ],
    confidence=0.8,
    least_share=0.10,  # uneven batches are normal; a tenth of the time is not
    lines=(LineChoice("count", "waits at the collective called", kinds=("collective",)),),
)
