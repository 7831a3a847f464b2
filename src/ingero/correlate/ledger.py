"""Where a feeding thread's time was lost, slice by slice.

Lost means: the GPU got nothing, or got it later. Time in which the thread was off
its core while the GPU was still busy costs nothing as long as the thread waits for
the GPU afterwards: that wait only gets shorter. So waits between two pieces of work
for the GPU count in full, those while it works only as far as they exceed the time
the thread then waits for it, and those inside a synchronising call only from the
moment the GPU was done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from ingero.correlate.loss import CLOCK, NETWORK, TASK, Chains, LossPart, Lost, Root, SliceLedger
from ingero.correlate.tables import Culprit, Family, Tables, by_name
from ingero.model.layout import Bucket
from ingero.model.window import BUCKET_NAMES, BUCKETS

# Buckets in which a thread does nothing for the GPU although it would like to. Sleep is
# a decision of the program's and no loss.
WAITS = (
    Bucket.RUNQUEUE, Bucket.DISK_WAIT, Bucket.MEMORY_WAIT, Bucket.LOCK_WAIT, Bucket.PEER_WAIT,
    Bucket.NET_WAIT, Bucket.UNEXPLAINED,
)  # fmt: skip
# What a thread that feeds the GPU itself does usefully while another waits for it.
USEFUL = frozenset({"cuda_cpu", "host_cpu", "gpu_wait"})
NO_LOSS = frozenset({"demand", "feeder", "clock"})
IDLE = ("sleep", "net_wait", "peer_wait")  # a server that waits to be asked is in one of these
ASKS = 0.1  # of the answers: who asks need not wake a server that is awake
NEGLIGIBLE_NS = 1_000_000  # of a slice: a twentieth of a percent is nobody's problem


class Ledgers:
    """Makes the ledger of one victim after the other."""

    def __init__(self, tables: Tables, family: Family, agent_pid: int | None) -> None:
        self._tables = tables
        self._family = family
        self._agent = agent_pid
        self._chains = Chains(tables)

    def of(self, pid: int, row: np.void, operations: Iterable[np.void]) -> SliceLedger:
        number = int(row["slice"])
        ledger = SliceLedger(number, int(row["ns"].sum()), by_name(row["ns"]), by_name(row["gap"]))
        ledger.system_ns = int(row["system_ns"])
        exposed = harmful(row, _inside_syncs(operations))
        for bucket in WAITS:
            if exposed[bucket] >= NEGLIGIBLE_NS:
                ledger.lost.extend(self._roots(pid, row, bucket, int(exposed[bucket])))
        return ledger

    def whole(self, pid: int, row: np.void) -> Iterator[Lost]:
        """All of a thread's time, not only what was lost: waits are what was waited for."""
        rows = [
            lost
            for bucket, ns in enumerate(row["ns"].tolist())
            if ns
            for lost in self._roots(pid, row, Bucket(bucket), ns, everything=True)
        ]
        process = self._tables.facts.processes.get(pid)
        if process is None or not process.serves:
            return iter(rows)
        return _while_asked(rows, self._asked_ns(int(row["slice"]), pid, int(row["tid"])))

    def _asked_ns(self, number: int, pid: int, tid: int) -> int:
        """For how long, at least, somebody waited for this server's answer: the one who did longest.

        A client, or a thread of the server's own that somebody from outside has woken, wakes it in turn.
        Whoever only takes what the server makes, its log, say, asks for nothing; nor does a thread that
        works ahead for the next step.
        """
        ended = [
            each
            for (at, _), every in self._tables.wakers.items()
            if at == number
            for each in every
            if each.kind in (TASK, NETWORK) and each.tid != each.waker_tid
        ]
        handling = {each.tid for each in ended if each.pid == pid and each.waker_pid != pid}
        ended = [each for each in ended if each.kind == TASK]
        answering = {tid} | {each.tid for each in ended if each.pid == pid and each.waker_tid == tid}
        asked: Counter[int] = Counter()
        answered: Counter[int] = Counter()
        waited_ns: Counter[int] = Counter()
        for each in ended:
            ours = each.pid == pid
            if each.tid == tid or (ours and each.waker_pid != pid):
                asked[each.waker_tid] += each.times
            elif each.waker_tid == tid or (not ours and each.waker_tid in answering):
                answered[each.tid] += each.times
                waited_ns[each.tid] += each.ns
        own = {each.tid for each in ended if each.pid == pid} - handling
        clients = (
            each for each, times in answered.items() if asked[each] >= ASKS * times and each not in own
        )
        return max((waited_ns[each] for each in clients), default=0)

    def _roots(
        self, pid: int, row: np.void, bucket: Bucket, ns: int, everything: bool = False
    ) -> Iterator[Lost]:
        number, tid = int(row["slice"]), int(row["tid"])
        comm = self._tables.name(row)
        if bucket == Bucket.RUNQUEUE:
            yield from self._displaced(
                number, pid, pid, tid, comm, ns, (), int(row["throttled_ns"]), everything
            )
        elif bucket == Bucket.LOCK_WAIT:
            gil = min(ns, int(row["gil_ns"]) * ns // max(int(row["ns"][bucket]), 1))
            if gil:
                yield self._held(number, pid, tid, comm, gil)
            yield from self._followed(
                number, pid, tid, comm, bucket, ns - gil, everything, int(row["gil_ns"])
            )
        elif bucket == Bucket.PEER_WAIT:
            yield from self._followed(number, pid, tid, comm, bucket, ns, everything)
        else:
            yield Lost(BUCKET_NAMES[bucket], ns, pid, tid, comm)

    def _held(self, number: int, pid: int, tid: int, comm: str, ns: int) -> Lost:
        """The interpreter's lock: whoever of the process ran meanwhile held it."""
        others = [row for row in self._tables.by_process[number, pid] if int(row["tid"]) != tid]
        ran = [(int(row["ns"][Bucket.HOST_CPU]), row) for row in others]
        ran = sorted((each for each in ran if each[0] >= NEGLIGIBLE_NS), key=lambda each: -each[0])[:3]
        who = tuple(LossPart(int(row["tid"]), self._tables.name(row), busy) for busy, row in ran)
        return Lost("lock_wait", ns, pid, tid, comm, who=who, whose="own", gil=True)

    def _followed(
        self,
        number: int,
        pid: int,
        tid: int,
        comm: str,
        bucket: Bucket,
        ns: int,
        everything: bool,
        gil_ns: int = 0,
    ) -> Iterator[Lost]:
        roots = self._chains.follow(number, pid, tid, bucket, gil_ns) if ns >= NEGLIGIBLE_NS else []
        waits = self._waits(number, tid, bucket)
        if not roots and (everything or ns >= NEGLIGIBLE_NS):
            yield Lost(BUCKET_NAMES[bucket], ns, pid, tid, comm, whose="unknown")
        for root in _merged(roots):
            part = int(ns * root.share)
            whose = self._whose(root)
            if not everything and (part < NEGLIGIBLE_NS or whose in NO_LOSS):
                continue
            if root.bucket == "runqueue":
                throttled = self._throttled(number, root)
                yield from self._displaced(
                    number, pid, root.pid, root.tid, root.comm, part, root.via, throttled, everything
                )
            else:
                who = (LossPart(root.pid, root.comm, part),) if root.pid != pid or not root.seen else ()
                yield Lost(
                    root.bucket, part, root.pid, root.tid, root.comm, root.via, who, whose, waits=waits
                )

    def _waits(self, number: int, tid: int, bucket: Bucket) -> int:
        """How many waits of a kind somebody ended."""
        wakers = self._tables.wakers.get((number, tid), ())
        return sum(each.times for each in wakers if each.bucket == bucket and each.kind == TASK)

    def _whose(self, root: Root) -> str:
        process = self._tables.facts.processes.get(root.pid)
        clock = root.ended_by == CLOCK
        if process and process.serves and (clock or root.bucket in IDLE):
            return "demand"  # a server that waits to be asked: nobody wants anything from the GPU
        if root.feeder and root.bucket in USEFUL:
            return "feeder"
        return "clock" if clock else "nobody" if root.seen and root.ended_by == TASK else "unknown"

    def _throttled(self, number: int, root: Root) -> int:
        row = self._tables.thread(number, root.tid)
        return int(row["throttled_ns"]) if row is not None else 0

    def _displaced(
        self,
        number: int,
        victim: int,
        pid: int,
        tid: int,
        comm: str,
        ns: int,
        via: tuple[str, ...],
        throttled_ns: int,
        everything: bool = False,
    ) -> Iterator[Lost]:
        """A wait for a core, divided by whose fault it was."""
        row = self._tables.thread(number, tid)
        waited = int(row["ns"][Bucket.RUNQUEUE]) if row is not None else ns
        quota = ns * min(throttled_ns, waited) // max(waited, 1)
        least = 1 if everything else NEGLIGIBLE_NS
        if quota >= least:
            yield Lost("runqueue", quota, pid, tid, comm, via, whose="quota")
        culprits = self._tables.culprits.get((number, tid), [])
        parts = self._blame(victim, culprits)
        total = max(waited - min(throttled_ns, waited), sum(p.ns for side in parts.values() for p in side), 1)
        rest = ns - quota
        for whose, members in parts.items():
            taken = sum(part.ns for part in members)
            share = int(rest * taken / total)
            if (everything or whose != "agent") and share >= least:
                yield Lost("runqueue", share, pid, tid, comm, via, tuple(members), whose)
        known = sum(part.ns for side in parts.values() for part in side)
        unknown = int(rest * (total - known) / total)
        if unknown >= least:
            yield Lost("runqueue", unknown, pid, tid, comm, via, whose="unknown")

    def _container(self, pid: int) -> str | None:
        process = self._tables.facts.processes.get(pid)
        return process.container if process else None

    def _blame(self, victim: int, culprits: list[Culprit]) -> dict[str, list[LossPart]]:
        sides: dict[str, list[LossPart]] = {"others": [], "neighbours": [], "own": [], "agent": []}
        home = self._container(victim)
        ran = (each for each in culprits if not each.throttled)
        for culprit in sorted(ran, key=lambda each: -each.ns):
            pid = culprit.pid
            name = self._tables.facts.strings.get(culprit.comm, "?")
            own = self._family.works_for(pid, victim)
            theirs = self._container(pid)
            side = "agent" if pid == self._agent else "own" if own else "others"
            if side == "others" and theirs is not None and theirs != home:
                side = "neighbours"
            sides[side].append(LossPart(pid, name, culprit.ns))
        return sides


def _while_asked(rows: list[Lost], asked_ns: int) -> Iterator[Lost]:
    """A server's time, when somebody waited for its answer for so long of it.

    It can have waited to be asked only for the rest. What a chain of waits took for that beyond it was
    something else on the same way; what has nothing else on it the server waited for by its own choice.
    """
    wall_ns = sum(row.ns for row in rows)
    idle_ns = sum(row.ns for row in rows if _is_idle(row))
    part = min(1.0, max(0, wall_ns - asked_ns) / idle_ns) if idle_ns else 1.0
    for row in rows:
        if not _is_idle(row) or part == 1.0:
            yield row
        else:
            unasked = int(row.ns * part)
            yield replace(row, ns=unasked)
            yield replace(row, ns=row.ns - unasked, whose="asked")


def _is_idle(row: Lost) -> bool:
    return row.whose == "demand" or (not row.via and row.bucket in IDLE)


def harmful(row: np.void, in_syncs_ns: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Of a thread's slice, per bucket: what the GPU did not hide."""
    total, gap = row["ns"].astype(np.int64), row["gap"].astype(np.int64)
    if gap.any() or row["known"]:  # the kernel side knows, and counted what the GPU did not hide
        exposed = np.zeros(BUCKETS, np.int64)
        exposed[list(WAITS)] = gap[list(WAITS)]
        exposed[Bucket.RUNQUEUE] += int(row["late_ns"])
        np.minimum(exposed, total, out=exposed)
        return exposed
    busy = np.maximum(total - gap, 0)
    outside = busy.copy()
    outside[Bucket.RUNQUEUE] = max(0, int(busy[Bucket.RUNQUEUE]) - in_syncs_ns)
    waiting = int(sum(outside[bucket] for bucket in WAITS))
    hidden = min(waiting, int(busy[Bucket.GPU_WAIT]))
    exposed = np.zeros(BUCKETS, np.int64)
    for bucket in WAITS:  # Python's numbers: the product leaves 64 bits from a slice of 3 s on
        beyond = int(outside[bucket]) * (waiting - hidden) // waiting if waiting else 0
        exposed[bucket] = int(gap[bucket]) + beyond
    exposed[Bucket.RUNQUEUE] += int(row["late_ns"])
    # A call that goes on is late in this slice and has its split in the one it returns in.
    np.minimum(exposed, total, out=exposed)
    return exposed


def _inside_syncs(operations: Iterable[np.void]) -> int:
    """Run-queue time inside synchronising calls: hidden, but for what `late_ns` says."""
    return sum(
        int(row["split"][Bucket.RUNQUEUE]) for row in operations if int(row["split"][Bucket.GPU_WAIT]) > 0
    )


def _merged(roots: list[Root]) -> list[Root]:
    """One root per place and bucket."""
    merged: dict[tuple[int, str, bool, int], Root] = {}
    for root in roots:
        key = (root.tid, root.bucket, root.seen, root.ended_by)
        before = merged.get(key)
        merged[key] = before._replace(share=before.share + root.share) if before else root
    return list(merged.values())
