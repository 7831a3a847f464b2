"""NCCL hang: some ranks are in a collective that others never joined, or that never ends.

Shows as   ranks waiting for the GPU for ever; nothing fails, nothing moves.
Proof      the number of the last collective each rank enqueued, and a synchronising call
           that has been in flight since.
Not this   a slow rank (nccl-straggler), or one that writes a checkpoint; a job that has
           ended.
Blind to   ranks on other nodes, unless their recordings are merged.
Severity   CRITICAL.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ingero.correlate.loss import Part
from ingero.correlate.timeline import Timeline
from ingero.detectors.detector import Detector, Line, State
from ingero.model.facts import Arrival, InFlight
from ingero.model.finding import Fix, Proof, Severity
from ingero.units import SECOND, format_ns

LEAST_NS = 3 * SECOND  # collectives take milliseconds; whoever watches wants to know soon
WORKING = ("host_cpu", "disk_wait", "memory_wait", "runqueue")
WORKING_NS = 30 * SECOND  # so long a rank may be busy with something else
USUAL_TIMES = 20  # longer than this many usual rounds


def _last_of_each(arrivals: list[Arrival]) -> dict[int, Arrival]:
    last: dict[int, Arrival] = {}
    for each in arrivals:
        if each.rank not in last or each.seq > last[each.rank].seq:
            last[each.rank] = each
    return last


def _patience_ns(arrivals: list[Arrival]) -> int:
    mine = sorted(each.at_ns for each in arrivals if each.rank == arrivals[0].rank)
    usual = float(np.median(np.diff(mine))) if len(mine) > 2 else 0.0
    return max(LEAST_NS, int(USUAL_TIMES * usual))


def _works(timeline: Timeline, pid: int) -> bool:
    """The missing rank computes, or waits for a disk or a core: it is late, and may come."""
    job = next((each for each in timeline.jobs if each.pid == pid), None)
    if job is None or not job.slices:
        return False
    last = job.slices[-2:]
    busy = sum(each.ns[name] for each in last for name in WORKING)
    return busy > sum(each.wall_ns for each in last) / 2


def _stuck(timeline: Timeline, pid: int, since_ns: int, patience_ns: int) -> InFlight | None:
    """A call of the process that began after its collective and has not come back."""
    for each in timeline.facts.in_flight:
        waits = each.op is not None or each.bucket == "gpu_wait"
        lasted = each.last_seen_ns - each.since_ns
        if each.pid == pid and waits and each.last_seen_ns >= since_ns and lasted >= patience_ns:
            return each
    return None


def find(timeline: Timeline) -> Iterator[State]:
    by_comm: dict[int, list[Arrival]] = {}
    for each in timeline.arrivals:
        if each.nranks > 1:
            by_comm.setdefault(each.comm_hash, []).append(each)
    for arrivals in by_comm.values():
        last = _last_of_each(arrivals)
        furthest = max(each.seq for each in last.values())
        waiting = [each for each in last.values() if each.seq == furthest]
        behind = [each for each in last.values() if each.seq < furthest]
        patience = _patience_ns(arrivals)
        if any(_works(timeline, each.pid) for each in behind):
            patience = max(patience, WORKING_NS)
        stuck = [
            (each, call) for each in waiting if (call := _stuck(timeline, each.pid, each.at_ns, patience))
        ]
        if stuck:
            yield _state(timeline, stuck, behind, furthest)


def _state(
    timeline: Timeline, stuck: list[tuple[Arrival, InFlight]], behind: list[Arrival], furthest: int
) -> State:
    first, call = stuck[0]
    facts = timeline.facts
    missing = ", ".join(f"rank {each.rank} (pid {each.pid})" for each in behind[:4])
    title = (
        f"Collective {furthest} hangs: {missing} never joined it"
        if behind
        else f"Collective {furthest} hangs: all {len(stuck)} ranks seen here are in it and it does not end"
    )
    since = min(arrival.at_ns for arrival, _ in stuck)
    proofs = [
        Proof(
            f"rank {arrival.rank} (pid {arrival.pid}) entered {arrival.op} number {arrival.seq}"
            f" and has waited"
            f" in {each.op or each.bucket} for {format_ns(each.last_seen_ns - each.since_ns)}",
            "SELECT rank, pid, MAX(seq) FROM nccl_events GROUP BY rank, pid",
        )
        for arrival, each in stuck[:3]
    ]
    proofs += [
        Proof(f"rank {each.rank} (pid {each.pid}) last entered number {each.seq}") for each in behind[:3]
    ]
    return State(
        first.pid,
        facts.comm(first.pid),
        title,
        since,
        max(each.last_seen_ns for _, each in stuck),
        tuple(proofs),
        Severity.CRITICAL,
        call.tid,
        first.op,
        tuple(Part(each.pid, facts.comm(each.pid), 0) for each in behind),
        (
            Fix(
                "See where the missing rank stands.",
                f"py-spy dump --pid {behind[0].pid}" if behind else None,
            ),
            Fix("Let hangs fail instead of waiting.", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"),
        ),
        waited_ns=call.last_seen_ns - call.since_ns,
    )


DETECTOR = Detector(
    name="nccl-hang",
    title="A collective hangs",
    needs=frozenset({"calls", "nccl"}),
    find=find,
    severity="CRITICAL",
    lines=(Line("last", "entered it", kinds=("collective",)),),
)
