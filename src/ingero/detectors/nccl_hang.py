"""NCCL hang: some ranks are in a collective that others never joined, or that never ends.

Shows as   ranks waiting for the GPU for ever; nothing fails, nothing moves.
Proof      the number of the last collective each rank enqueued, and a synchronising call
           that has not returned since, far longer than any before it. It may still last, the
           trace may have ended first, or the job may have been killed in it. If the communicator
           is older than the trace, the proof is that call alone, in a process that does nothing
           else; the finding is then less sure.
Not this   a slow rank (nccl-straggler), or one that writes a checkpoint; a long wait that
           all ranks are in, if there were such waits before; a wait that ended.
Blind to   ranks on other nodes, unless those are asked too or recordings are merged; who is missing, and in
           which collective, if all ranks entered it before the trace began; whether processes
           that hung before the trace are one job (independent jobs with one command line and one parent
           look like ranks, if one of them waits very long).
Severity   CRITICAL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ingero.correlate.loss import LossPart
from ingero.correlate.timeline import Timeline
from ingero.detectors.commands import FAIL_INSTEAD, look
from ingero.detectors.detector import Detector, LineChoice, State
from ingero.detectors.nccl_unknown import (
    FAR,
    FIRST_NS,
    calls_after,
    longest_wait_ns,
    ops_of_kind,
    unknown_hangs,
)
from ingero.model.facts import Arrival, InFlight
from ingero.model.finding import Fix, Proof, Severity
from ingero.units import SECOND, format_ns

LEAST_NS = 3 * SECOND  # collectives take milliseconds; whoever watches wants to know soon
WORKING = ("host_cpu", "disk_wait", "memory_wait", "runqueue")
WORKING_NS = 30 * SECOND  # so long a rank may be busy with something else
LATE_NS = 10 * SECOND  # so much later a rank may begin
USUAL_TIMES = 20  # longer than this many usual rounds


def _last_of_each(arrivals: list[Arrival]) -> dict[int, Arrival]:
    last: dict[int, Arrival] = {}
    for each in arrivals:
        if each.rank not in last or each.seq > last[each.rank].seq:
            last[each.rank] = each
    return last


def _patience_ns(timeline: Timeline, arrivals: list[Arrival], behind: list[Arrival]) -> int:
    mine = sorted(each.at_ns for each in arrivals if each.rank == arrivals[0].rank)
    usual = float(np.median(np.diff(mine))) if len(mine) > 2 else 0.0
    longest = max(longest_wait_ns(timeline.facts, pid) for pid in {each.pid for each in arrivals})
    patience = max(LEAST_NS, int(USUAL_TIMES * usual), FAR * longest)
    if any(_works(timeline, each.pid) for each in behind):
        return max(patience, WORKING_NS)
    if longest:
        return patience
    # Nobody has seen one end: a rank may begin late, and what all are in may be as long as that.
    return max(patience, LATE_NS if behind else FIRST_NS)


def _works(timeline: Timeline, pid: int) -> bool:
    """The missing rank computes, or waits for a disk or a core: it is late, and may come."""
    job = next((each for each in timeline.jobs if each.pid == pid), None)
    if job is None or not job.slices:
        return False
    last = job.slices[-2:]
    busy = sum(each.ns[name] for each in last for name in WORKING)
    return busy > sum(each.wall_ns for each in last) / 2


def waits_since(timeline: Timeline, pid: int, since_ns: int, patience_ns: int) -> InFlight | None:
    """A call of the process that began after its collective and has not come back."""
    for each in timeline.facts.in_flight:
        waits = each.op is not None or each.bucket == "gpu_wait"
        lasted = each.last_seen_ns - max(each.since_ns, since_ns)
        if each.pid == pid and waits and lasted >= patience_ns:
            return each
    return None


def gave_up(timeline: Timeline, pid: int, since_ns: int, patience_ns: int) -> InFlight | None:
    """A wait that returned though others never joined: a watchdog ended it, or whoever killed them."""
    facts = timeline.facts
    for op in ops_of_kind(facts, "sync"):
        for start, took in facts.marks(pid, op)[-1:].tolist():
            if start + took - max(start, since_ns) >= patience_ns and not calls_after(
                facts, pid, start + took
            ):
                tid = next((job.tid for job in timeline.jobs if job.pid == pid), pid)
                return InFlight(pid, tid, facts.ops[op].name, start, start + took, "gpu_wait")
    return None


def _waits(
    ask: Callable[[Timeline, int, int, int], InFlight | None],
    timeline: Timeline,
    waiting: list[Arrival],
    since_ns: int,
    patience_ns: int,
) -> list[tuple[Arrival, InFlight]]:
    return [(each, call) for each in waiting if (call := ask(timeline, each.pid, since_ns, patience_ns))]


def find(timeline: Timeline) -> Iterator[State]:
    yield from _known_hangs(timeline)
    yield from unknown_hangs(timeline)


def _known_hangs(timeline: Timeline) -> Iterator[State]:
    by_comm: dict[int, list[Arrival]] = {}
    for each in timeline.arrivals:
        if each.nranks > 1:
            by_comm.setdefault(each.comm_hash, []).append(each)
    for each in timeline.facts.standing:
        by_comm.setdefault(each.comm_hash, []).append(each)
    for arrivals in by_comm.values():
        last = [each for _, each in sorted(_last_of_each(arrivals).items())]
        furthest = max(each.seq for each in last)
        waiting = [each for each in last if each.seq == furthest]
        behind = [each for each in last if each.seq < furthest]
        patience = _patience_ns(timeline, arrivals, behind)
        newest_ns = max(each.at_ns for each in arrivals)  # while somebody still comes, it goes on
        stuck = _waits(waits_since, timeline, waiting, newest_ns, patience)
        if behind and not stuck:
            stuck = _waits(gave_up, timeline, waiting, newest_ns, patience)
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
            f" and {'had' if each.died else 'has'} waited in {each.op or each.bucket}"
            f" for {format_ns(each.lasted_ns)}{' when it ended' if each.died else ''}",
            "SELECT rank, pid, MAX(seq) FROM nccl_events GROUP BY rank, pid",
        )
        for arrival, each in stuck[:3]
    ]
    proofs += [
        Proof(
            f"rank {each.rank} (pid {each.pid})"
            + (f" last entered number {each.seq}" if each.seq >= 0 else " has entered none")
        )
        for each in behind[:3]
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
        tuple(LossPart(each.pid, facts.comm(each.pid), 0) for each in behind),
        (
            look(facts, behind[0].pid, "See what the missing rank is doing.", "py-spy dump --pid {}")
            if behind
            else Fix("See what the missing rank is doing."),
            FAIL_INSTEAD,
        ),
        waited_ns=call.lasted_ns,
    )


DETECTOR = Detector(
    name="nccl-hang",
    needs=frozenset({"calls", "nccl"}),
    find=find,
    severity="CRITICAL",
    lines=(LineChoice("last", "entered it", kinds=("collective",)),),
)
