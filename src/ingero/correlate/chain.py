"""What a thread that others wait for was doing: the cause at the end of a chain of waits.

A wait ends by somebody. What that thread did in the same two seconds, apart from
waiting for us to ask for more, is why we waited. If it mostly waited for yet
another one, that one is asked, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ingero.correlate.tables import Tables
from ingero.model.layout import Bucket, WakerKind
from ingero.model.window import BUCKET_NAMES

MAX_DEPTH = 6
ASKING = (Bucket.LOCK_WAIT, Bucket.PEER_WAIT)  # waits that somebody else ends
# Parts of a wait smaller than this are not followed: 64 workers are, each of them, but
# threads that all wake each other make ever more ways.
NEGLIGIBLE = 0.002


@dataclass(frozen=True, slots=True)
class Root:
    """A share of a wait, and where it leads."""

    bucket: str
    share: float
    pid: int
    tid: int
    comm: str
    via: tuple[str, ...]
    seen: bool = True  # False: that thread is not traced, all we know is its name
    feeder: bool = False


class Chains:
    """Follows waits within one slice after the other."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def follow(self, number: int, pid: int, tid: int, bucket: Bucket) -> list[Root]:
        """Why a thread's waits of one kind lasted; shares sum to 1, or nothing is known."""
        return _normal(list(self._ended_by(number, tid, bucket, frozenset({tid}), pid, ())))

    def _ended_by(
        self, number: int, tid: int, bucket: Bucket, asked: frozenset[int], victim: int, via: tuple[str, ...]
    ) -> Iterator[Root]:
        wakers = self._tables.wakers.get((number, tid))
        if wakers is None:
            return
        wakers = wakers[(wakers["bucket"] == bucket) & (wakers["kind"] == WakerKind.WAKER_TASK)]
        total = int(wakers["ns"].sum())
        for waker in wakers:
            share = int(waker["ns"]) / total if total else 0.0
            if share < NEGLIGIBLE or int(waker["waker_tid"]) in asked:
                continue
            for root in self._doing(number, waker, asked, victim, via, share):
                yield _scaled(root, share)

    def _doing(
        self,
        number: int,
        waker: np.void,
        asked: frozenset[int],
        victim: int,
        via: tuple[str, ...],
        weight: float,
    ) -> list[Root]:
        """What the waker did; `weight` is its part of the whole wait."""
        pid, tid = int(waker["waker_pid"]), int(waker["waker_tid"])
        comm = self._tables.facts.strings.get(int(waker["comm"]), "?")
        row = self._tables.thread(number, tid)
        via = (*via, comm)
        if row is None or len(asked) > MAX_DEPTH or weight < NEGLIGIBLE:
            return [Root("peer_wait", 1.0, pid, tid, comm, via, seen=False)]
        comm = self._tables.name(row)
        feeder = bool(row["feeder"])
        each_ns = weight / max(int(row["ns"].sum()), 1)
        found: list[Root] = []
        for at, name in enumerate(BUCKET_NAMES):
            ns = int(row["ns"][at])
            if not ns:
                continue
            if Bucket(at) in ASKING:
                found.extend(self._asking(number, row, Bucket(at), asked, victim, via, each_ns))
            else:
                found.append(Root(name, float(ns), pid, tid, comm, via, feeder=feeder))
        return _normal(found)

    def _asking(
        self,
        number: int,
        row: np.void,
        bucket: Bucket,
        asked: frozenset[int],
        victim: int,
        via: tuple[str, ...],
        each_ns: float,
    ) -> Iterator[Root]:
        """Its own waits for others, without those that ended because we asked for more."""
        tid, ns = int(row["tid"]), int(row["ns"][bucket])
        wakers = self._tables.wakers.get((number, tid))
        if wakers is None:
            return
        mine = wakers[wakers["bucket"] == bucket]
        total = int(mine["ns"].sum())
        idle = int(row["pid"]) != victim
        for waker in mine[mine["kind"] == WakerKind.WAKER_TASK]:
            if int(waker["waker_tid"]) in asked or (idle and int(waker["waker_pid"]) == victim):
                continue
            part = ns * int(waker["ns"]) / max(total, 1)
            for root in self._doing(number, waker, asked | {tid}, victim, via, part * each_ns):
                yield _scaled(root, part)


def _scaled(root: Root, by: float) -> Root:
    return Root(root.bucket, root.share * by, root.pid, root.tid, root.comm, root.via, root.seen, root.feeder)


def _normal(roots: list[Root]) -> list[Root]:
    total = sum(root.share for root in roots)
    return [_scaled(root, 1 / total) for root in roots] if total else []
