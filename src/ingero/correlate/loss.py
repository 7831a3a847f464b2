"""Time a feeding thread lost, with the place where it was really lost: at the end of the chain of waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ingero.correlate.tables import Tables, Waker
from ingero.model.layout import Bucket, WakerKind
from ingero.model.window import BUCKET_NAMES

# Time a feeding thread lost, with the place where it was really lost.
#
# A wait for another thread is followed along whoever ended it: what that one did
# meanwhile is the cause. `bucket` is the bucket of the last thread on that way.


@dataclass(frozen=True, slots=True)
class LossPart:
    """A process with a part in it."""

    pid: int
    comm: str
    ns: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Some nanoseconds in which the GPU got nothing, or less, and why."""

    bucket: str
    ns: int
    pid: int  # where it was lost
    tid: int
    comm: str
    via: tuple[str, ...] = ()  # names of the threads in between, the victim's own left out
    who: tuple[LossPart, ...] = ()  # whose fault, where somebody else has one
    # nobody, quota, own (the job itself), others, neighbours (in another container), unknown, clock (it had
    # said how long it would wait, and that time was up);
    # in a whole account also agent (us), demand (nobody wants anything), asked (a server waits, and somebody
    # for its answer) and feeder (another thread that feeds the GPU)
    whose: str = "nobody"
    gil: bool = False
    waits: int = 0  # how many; 0: not counted
    rare: bool = False  # not even in every tenth iteration
    what: str = ""  # of time on a core, or of waits for the GPU: the kind of call, or gc

    @property
    def direct(self) -> bool:
        return not self.via


@dataclass(slots=True)
class SliceLedger:
    """Two seconds of a victim."""

    number: int
    wall_ns: int
    ns: dict[str, int]
    gap: dict[str, int]
    system_ns: int = 0  # of the time on a core: inside the kernel
    lost: list[Lost] = field(default_factory=list)
    cold: bool = False
    starting: bool = False  # the process had not yet begun to give the GPU work second after second
    ending: bool = False  # the job's last second of steps, or what came after it
    lossy: bool = False  # records were lost meanwhile: nothing may be concluded from absence

    @property
    def gap_ns(self) -> int:
        return sum(self.gap.values())

    def lost_ns(self, *buckets: str) -> int:
        return sum(each.ns for each in self.lost if each.bucket in buckets)


# What a thread that others wait for was doing: the cause at the end of a chain of waits.
#
# A wait ends by somebody. What that thread did in the same two seconds, apart from
# waiting for us to ask for more, is why we waited. If it mostly waited for yet
# another one, that one is asked, and so on.


MAX_DEPTH = 6  # loader, queue and worker are three; much longer ways are rings
ASKING = (Bucket.LOCK_WAIT, Bucket.PEER_WAIT)  # waits that somebody else ends
TASK = int(WakerKind.WAKER_TASK)
# What a wait was that no thread ended; other interrupts tell nothing.
CLOCK, NETWORK = int(WakerKind.WAKER_IRQ_TIMER), int(WakerKind.WAKER_IRQ_NET)
FROM_OUTSIDE = {CLOCK: "sleep", NETWORK: "net_wait"}
# Parts of a wait smaller than this are not followed one by one: 64 workers are, each of them, but
# threads that all wake each other make ever more ways. A thousand short processes are seen as one.
NEGLIGIBLE = 0.002


class Root(NamedTuple):
    """A share of a wait, and where it leads."""

    bucket: str
    share: float
    pid: int
    tid: int
    comm: str
    via: tuple[str, ...]
    seen: bool = True  # False: that thread is not traced, all we know is its name
    feeder: bool = False
    ended_by: int = TASK  # CLOCK or the network: the asking thread's own wait, which no thread ended


@dataclass(frozen=True, slots=True)
class FollowedWait:
    """A wait being followed: who asked already, along which way, how much of it."""

    asked: frozenset[int]
    victim: int
    via: tuple[str, ...]
    ns: float  # of the one who asked last
    share: float  # of the wait at the beginning


class Chains:
    """Follows waits within one slice after the other."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def follow(self, number: int, pid: int, tid: int, bucket: Bucket, gil_ns: int = 0) -> list[Root]:
        """Why a thread's waits of one kind lasted; shares sum to 1, or nothing is known.

        `gil_ns`: of these waits, those for the interpreter's lock, which are asked about elsewhere. Whoever
        waits for it looks every few milliseconds whether it is free, so the clock ends them.
        """
        return _normal(list(self._ended_by(number, tid, bucket, pid, gil_ns)))

    def _ended_by(self, number: int, tid: int, bucket: Bucket, victim: int, gil_ns: int) -> Iterator[Root]:
        every = [each for each in self._tables.wakers.get((number, tid), ()) if each.bucket == bucket]
        wakers = [each for each in every if each.kind == TASK and each.waker_tid != tid]
        outside = {kind: sum(each.ns for each in every if each.kind == kind) for kind in FROM_OUTSIDE}
        outside[CLOCK] = max(0, outside[CLOCK] - gil_ns)
        asked = frozenset({tid})
        total = max(sum(each.ns for each in every if each.kind == TASK) + sum(outside.values()), 1)
        row = self._tables.thread(number, tid)
        comm = "" if row is None else self._tables.name(row)
        for kind, ns in outside.items():
            if ns:
                yield Root(BUCKET_NAMES[bucket], ns, victim, tid, comm, (), ended_by=kind)
        large, small = _apart(wakers, NEGLIGIBLE * total)
        for waker in large:
            by = FollowedWait(asked, victim, (), waker.ns, waker.ns / total)
            yield from self._doing(number, waker, by)
        for alike in small:
            ns = sum(each.ns for each in alike)
            yield from self._together(number, alike, FollowedWait(asked, victim, (), ns, ns / total))

    def _together(self, number: int, alike: list[Waker], by: FollowedWait) -> list[Root]:
        """What many threads of one name did, each of which was hardly waited for."""
        first = max(alike, key=lambda each: each.ns)
        pid, tid, comm = first.waker_pid, first.waker_tid, self._tables.facts.strings.get(first.comm, "?")
        rows = [row for each in alike if (row := self._tables.thread(number, each.waker_tid)) is not None]
        via = (*by.via, comm)
        if not rows:
            return [Root("peer_wait", by.ns, pid, tid, comm, via, seen=False)]
        sums = np.array([row["ns"] for row in rows], np.int64).sum(axis=0)
        found = [
            Root(name, float(ns), pid, tid, comm, via, seen=at not in ASKING)
            for at, (name, ns) in enumerate(zip(BUCKET_NAMES, sums.tolist(), strict=True))
            if ns
        ]
        return _within(found, by.ns, int(sums.sum()))

    def _doing(self, number: int, waker: Waker, by: FollowedWait) -> list[Root]:
        """What the waker did in the time it was waited for; shares are nanoseconds."""
        pid, tid = waker.waker_pid, waker.waker_tid
        comm = self._tables.facts.strings.get(waker.comm, "?")
        row = self._tables.thread(number, tid)
        via = (*by.via, comm)
        if row is None or len(by.asked) > MAX_DEPTH or by.share < NEGLIGIBLE:
            return [Root("peer_wait", by.ns, pid, tid, comm, via, seen=False)]
        comm, feeder = self._tables.name(row), bool(row["feeder"])
        found: list[Root] = []
        for at, (name, ns) in enumerate(zip(BUCKET_NAMES, row["ns"].tolist(), strict=True)):
            if ns and at in ASKING:
                found.extend(self._asking(number, row, Bucket(at), replace(by, via=via)))
            elif ns:
                found.append(Root(name, float(ns), pid, tid, comm, via, feeder=feeder))
        return _within(found, by.ns, int(row["ns"].sum()))

    def _asking(self, number: int, row: np.void, bucket: Bucket, by: FollowedWait) -> Iterator[Root]:
        """Its own waits for others, without those that ended because we asked for more."""
        pid, tid, ns = int(row["pid"]), int(row["tid"]), int(row["ns"][bucket])
        mine = [each for each in self._tables.wakers.get((number, tid), ()) if each.bucket == bucket]
        total = max(sum(each.ns for each in mine), 1)
        unknown = 0.0 if len(mine) else float(ns)
        for waker in mine:
            kind, part = waker.kind, ns * waker.ns / total
            if kind in FROM_OUTSIDE:
                yield Root(FROM_OUTSIDE[kind], part, pid, tid, self._tables.name(row), by.via)
            elif kind != TASK:
                unknown += part
        theirs = [each for each in mine if each.kind == TASK and not _asks(each, pid, by)]
        # All it did shrinks to the time it was waited for, and these waits of it alike.
        whole = by.share * ns / max(_active_ns(row), by.ns)
        large, small = _apart(theirs, NEGLIGIBLE * total / max(whole, NEGLIGIBLE))
        for alike in (*([each] for each in large), *small):
            part = ns * sum(each.ns for each in alike) / total
            share = whole * part / ns
            inner = replace(by, asked=by.asked | {tid}, ns=part, share=share)
            one = len(alike) == 1
            yield from self._doing(number, alike[0], inner) if one else self._together(number, alike, inner)
        if unknown > NEGLIGIBLE * ns:
            yield Root(BUCKET_NAMES[bucket], unknown, pid, tid, self._tables.name(row), by.via, seen=False)


def _apart(wakers: list[Waker], least_ns: float) -> tuple[list[Waker], list[list[Waker]]]:
    """Those waited for long enough to be asked one by one, and the others by name."""
    large = [each for each in wakers if each.ns >= least_ns]
    small: dict[int, list[Waker]] = defaultdict(list)
    for each in wakers:
        if each.ns < least_ns:
            small[each.comm].append(each)
    return large, [alike for alike in small.values() if sum(each.ns for each in alike) >= least_ns]


def _asks(waker: Waker, pid: int, by: FollowedWait) -> bool:
    """One of those who wait asked the thread for more: it was not late by that."""
    return waker.waker_tid in by.asked or (pid != by.victim and waker.waker_pid == by.victim)


def _active_ns(row: np.void) -> int:
    return int(row["ns"].sum()) - int(row["ns"][Bucket.SLEEP])


def _scaled(root: Root, by: float) -> Root:
    return root._replace(share=root.share * by)


def _normal(roots: list[Root]) -> list[Root]:
    total = sum(root.share for root in roots)
    return [_scaled(root, 1 / total) for root in roots] if total else []


def _within(roots: list[Root], ns: float, lived_ns: float) -> list[Root]:
    """As much of what a thread did as fits into the time it was waited for.

    What it did comes before what it did not: a thread that worked for 100 ms and slept
    for the rest of the two seconds did not sleep in the 100 ms it was waited for. What was
    waited for a thread before there was one is not what it did: nobody knows who was to start it.
    """
    active = [root for root in roots if root.bucket != "sleep"]
    asleep = [root for root in roots if root.bucket == "sleep"]
    before_ns = max(ns - lived_ns, 0.0)
    did, ns = sum(root.share for root in active), ns - before_ns
    if did >= ns or not asleep:
        found = [_scaled(root, ns / did) for root in active] if did else []
    else:
        slept = sum(root.share for root in asleep)
        found = active + [_scaled(root, min(1.0, (ns - did) / slept)) for root in asleep]
    if before_ns <= NEGLIGIBLE * (ns + before_ns) or not roots:
        return found
    pid, tid, comm, via = roots[0].pid, roots[0].tid, roots[0].comm, roots[0].via
    return [*found, Root("peer_wait", before_ns, pid, tid, comm, via, seen=False)]
