"""Hangs of collectives whose communicator is not known: it was made before the trace began.

Which ranks there are and how far each came cannot be told then. What can: a process is in one
synchronising call, far longer than in any before, and does nothing else. Where its last
collective was seen, that is the proof; where all of it was entered before we came, that it is
one of several ranks must show: by what it was told (WORLD_SIZE), or by others that were started
the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from ingero.correlate.loss import LossPart
from ingero.correlate.timeline import Timeline
from ingero.detectors.commands import FAIL_INSTEAD, look
from ingero.detectors.detector import State
from ingero.model.facts import Facts, InFlight, ProcessFact
from ingero.model.finding import Proof, Severity
from ingero.model.layout import Bucket
from ingero.units import SECOND, format_ns

LEAST_NS = 10 * SECOND  # longer than where the ranks are known: less is known
ALL_IN_NS = 60 * SECOND  # a wait that all are in may be a long step, of which we saw no other
CONFIDENCE = 0.6
SQL = "SELECT * FROM unfinished_calls"
UNKNOWN = Proof("the communicator was created before the trace began, so the missing ranks are not known")
Family = tuple[int | None, str | None]


def unknown_hangs(timeline: Timeline) -> Iterator[State]:
    facts = timeline.facts
    known = {each.pid for each in timeline.arrivals if each.nranks > 1}
    waits = [each for each in _longest_of_each(facts) if each.pid not in known]
    for each in waits:
        if each.entered and _after_its_collective(facts, each):
            yield _after_collective(facts, each)
    families: dict[Family, list[InFlight]] = defaultdict(list)
    for each in waits:
        if not each.entered and each.with_nccl and not calls_after(facts, each.pid, each.since_ns):
            families[_family(facts.processes.get(each.pid))].append(each)
    for members in families.values():
        found = _of_family(facts, members)
        if found is not None:
            yield found


def _longest_of_each(facts: Facts) -> list[InFlight]:
    """The call each process is in for longest, of those that wait for the GPU."""
    syncs = {op.name for op in facts.ops.values() if op.kind == "sync"}
    longest: dict[int, InFlight] = {}
    for each in facts.in_flight:
        if each.op in syncs and (each.pid not in longest or each.lasted_ns > longest[each.pid].lasted_ns):
            longest[each.pid] = each
    return list(longest.values())


def _after_its_collective(facts: Facts, each: InFlight) -> bool:
    at_ns = facts.nameless.get(each.pid)
    if at_ns is None or at_ns > each.since_ns or calls_after(facts, each.pid, each.since_ns):
        return False
    longest = longest_wait_ns(facts, each.pid)
    return each.lasted_ns >= (max(LEAST_NS, FAR * longest) if longest else FIRST_NS)


def _after_collective(facts: Facts, each: InFlight) -> State:
    comm = facts.comm(each.pid)
    longest = longest_wait_ns(facts, each.pid)
    before = f"; none before took longer than {format_ns(longest)}" if longest else ""
    after_ns = each.since_ns - facts.nameless[each.pid]
    proof = Proof(
        f"{comm} (pid {each.pid}) enqueued its last collective {format_ns(after_ns)} before it went into"
        f" {each.op}, {_has(each)} been in it for {format_ns(each.lasted_ns)}{before},"
        " and did nothing else",
        SQL,
    )
    title = f"A collective seems to hang: {comm} waits in {each.op} for {format_ns(each.lasted_ns)} after it"
    return _state(facts, each, [each], title, [proof], [])


def _family(process: ProcessFact | None) -> Family:
    return (process.parent_pid, process.cmdline) if process else (None, None)


def _of_family(facts: Facts, members: list[InFlight]) -> State | None:
    first = max(members, key=lambda each: each.lasted_ns)
    process = facts.processes.get(first.pid)
    stuck = {each.pid for each in members}
    others = [
        each
        for each in facts.processes.values()
        if process and process.cmdline and _family(each) == _family(process) and each.pid not in stuck
    ]
    told = process is not None and (process.world_size or 0) > 1
    if not told and not others and len(members) < 2:
        return None
    absent = [each for each in others if each.end_ns is None or each.end_ns > first.since_ns]
    one_sided = absent and not any(is_busy(facts, each.pid) for each in absent)
    if first.lasted_ns < (LEAST_NS if one_sided else ALL_IN_NS):
        return None
    proofs = [
        Proof(
            f"{facts.comm(each.pid)} (pid {each.pid}) {_has(each)} been in {each.op} since before it was"
            f" watched, for {format_ns(each.lasted_ns)} or longer, and did nothing else",
            SQL,
        )
        for each in members[:3]
    ]
    proofs += [
        Proof(f"{each.comm} (pid {each.pid}) was started the same way and is in no such wait")
        for each in absent[:3]
    ]
    more = f" and {len(members) - 1} more wait" if len(members) > 1 else " waits"
    title = (
        f"A collective seems to hang: {facts.comm(first.pid)} (pid {first.pid}){more} in {first.op},"
        " since before it was watched"
    )
    return _state(facts, first, members, title, proofs, absent)


def _has(each: InFlight) -> str:
    return "had" if each.died else "has"


def _state(
    facts: Facts,
    first: InFlight,
    members: list[InFlight],
    title: str,
    proofs: list[Proof],
    absent: list[ProcessFact],
) -> State:
    look_at = absent[0].pid if absent else first.pid
    return State(
        first.pid,
        facts.comm(first.pid),
        title,
        min(each.since_ns for each in members),
        max(each.last_seen_ns for each in members),
        (proofs[0], UNKNOWN, *proofs[1:]),
        Severity.CRITICAL,
        first.tid,
        first.op,
        tuple(LossPart(each.pid, each.comm, 0) for each in absent),
        (
            look(facts, look_at, "See what each rank is doing; start with this one.", "py-spy dump --pid {}"),
            FAIL_INSTEAD,
        ),
        CONFIDENCE,
        first.lasted_ns,
    )


# How long a process's waits for the GPU take, and who is busy: what hangs are told from.


FAR = 5  # times the longest wait that ended: a wait of another kind
FIRST_NS = 30 * SECOND  # so long a first wait may take: whole epochs are given to a GPU at once
WORKING = (Bucket.HOST_CPU, Bucket.CUDA_CPU, Bucket.DISK_WAIT, Bucket.MEMORY_WAIT, Bucket.RUNQUEUE)
LAYERS = ("runtime", "driver", "graph", "nccl")


def ops_of_kind(facts: Facts, *kinds: str) -> list[int]:
    return [number for number, op in facts.ops.items() if op.kind in kinds and op.layer in LAYERS]


def longest_wait_ns(facts: Facts, pid: int) -> int:
    """The longest synchronising call of a process that returned; 0: none did."""
    rows = facts.operations
    mine = rows[(rows["pid"] == pid) & np.isin(rows["op"], ops_of_kind(facts, "sync"))]
    return int(mine["max_ns"].max()) if len(mine) else 0


def calls_after(facts: Facts, pid: int, at_ns: int) -> bool:
    """Whether a process called CUDA or NCCL in a slice that began after this."""
    ours = [number for number, op in facts.ops.items() if op.layer in LAYERS]
    rows = facts.operations
    mine = rows["slice"][(rows["pid"] == pid) & np.isin(rows["op"], ours)]
    return bool(len(mine)) and facts.at_ns(int(mine.max())) > at_ns


def is_busy(facts: Facts, pid: int) -> bool:
    """A thread of it worked, or wanted to, for most of the last slices it was seen in."""
    rows = facts.threads[facts.threads["pid"] == pid]
    if not len(rows):
        return False
    last = rows[rows["slice"] >= rows["slice"].max() - 1]
    for tid in np.unique(last["tid"]):
        ns = last["ns"][last["tid"] == tid].sum(axis=0)
        if 2 * sum(int(ns[bucket]) for bucket in WORKING) > int(ns.sum()):
            return True
    return False
