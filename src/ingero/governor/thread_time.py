"""Threads' time while not all their calls were watched, divided as when they were.

A call nobody sees looks like work of the thread's own: on a core, outside any call. So of
the time on a core while calls were not watched as much counts as inside calls as did
while they were; and whether the GPU had nothing to do in a wait is taken from
waits of the same kind. What was moved is kept as `estimated_ns`: sums stay what they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ingero.governor.seen import UNSEEN_WAIT, SeenTime, Watched
from ingero.model.layout import Bucket
from ingero.model.window import BUCKETS, Records

POOLED = 6  # windows
CPU = (Bucket.CUDA_CPU, Bucket.HOST_CPU)
LEAST_NS = 5_000_000  # seen on a core: less says nothing of how it divides


class ThreadEstimator:
    """Completes windows, one after the other."""

    def __init__(self) -> None:
        self._pools: dict[int, deque[SeenTime]] = {}

    def complete(
        self, threads: Records, watched: Watched | None, start_ns: int, hidden_ns: Mapping[int, float]
    ) -> None:
        """`hidden_ns`: by process, time in a call that was counted and not timed."""
        if watched is None:
            self._pools.clear()
            return
        for tid, seen in watched.threads.items():
            self._pools.setdefault(tid, deque(maxlen=POOLED)).append(seen)
        there = set(threads["tid"].tolist())
        self._pools = {tid: pool for tid, pool in self._pools.items() if tid in there}
        for row in threads:
            tid = int(row["tid"])
            if tid in self._pools and int(row["window_ns"]) == start_ns and row["feeder"]:
                now = watched.threads.get(tid, SeenTime())  # a whole window may pass between two looks
                total = _sum(self._pools[tid])
                if watched.blind:  # first: what is left of the time on a core is divided then
                    _divide_waits(row, total, now)
                _divide(row, total, now, hidden_ns.get(int(row["pid"]), 0.0))

    def forget_pools(self) -> None:
        """What was seen so far says nothing of what comes, but for the last of it."""
        self._pools = {tid: deque(list(pool)[-1:], maxlen=POOLED) for tid, pool in self._pools.items()}


def _sum(pool: deque[SeenTime]) -> SeenTime:
    total = SeenTime()
    for each in pool:
        total.add(each)
    return total


def _divide(row: np.void, total: SeenTime, now: SeenTime, hidden_ns: float) -> None:
    ns = row["ns"].astype(np.int64)
    unseen = np.maximum(ns - now.ns, 0)
    row["gap"] = _gap(row, total, now, np.maximum(ns - now.told, 0))
    seen_cpu = int(total.ns[list(CPU)].sum())
    if seen_cpu < LEAST_NS:
        return
    inside = min(int(total.ns[Bucket.CUDA_CPU] + total.counted * hidden_ns), seen_cpu)
    in_calls = min(int(now.ns[Bucket.CUDA_CPU] + now.counted * hidden_ns), int(now.ns[list(CPU)].sum()))
    wanted = in_calls + int(unseen[list(CPU)].sum()) * inside // seen_cpu
    moved = max(min(wanted - int(ns[Bucket.CUDA_CPU]), int(ns[Bucket.HOST_CPU])), -int(ns[Bucket.CUDA_CPU]))
    row["ns"][Bucket.CUDA_CPU] = int(ns[Bucket.CUDA_CPU]) + moved
    row["ns"][Bucket.HOST_CPU] = int(ns[Bucket.HOST_CPU]) - moved
    row["estimated_ns"] += np.uint64(abs(moved))
    row["gap"] = np.minimum(row["gap"], row["ns"])


def _divide_waits(row: np.void, total: SeenTime, now: SeenTime) -> None:
    """A wait for the GPU that nobody saw looks like something else: what there is more of than in looks."""
    kinds = [Bucket.CUDA_CPU, Bucket.GPU_WAIT, *UNSEEN_WAIT]
    seen = int(total.ns[kinds].sum())
    if seen < LEAST_NS:
        return
    ns = row["ns"].astype(np.int64)
    unseen = np.maximum(ns - now.ns, 0)
    part = int(unseen[kinds].sum()) / seen
    wanted = int(now.ns[Bucket.GPU_WAIT]) + int(total.ns[Bucket.GPU_WAIT] * part) - int(ns[Bucket.GPU_WAIT])
    more = np.maximum(unseen - total.ns * part, 0)[list(UNSEEN_WAIT)]
    if wanted <= 0 or not more.sum():
        return
    moved = (more * min(1.0, wanted / more.sum())).astype(np.uint64)
    row["ns"][list(UNSEEN_WAIT)] -= moved
    row["ns"][Bucket.GPU_WAIT] += moved.sum()
    row["estimated_ns"] += moved.sum()
    row["gap"] = np.minimum(row["gap"], row["ns"])


def _gap(row: np.void, total: SeenTime, now: SeenTime, untold: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Where a kind of wait was never seen in looks, what the kernel side could tell without them.

    It knows more of long waits (unwatched.bpf.h), looks of short ones amid launches.
    """
    share = np.divide(total.gap, total.told, out=np.zeros(BUCKETS), where=total.told > 0)
    from_looks = now.gap + (untold * np.minimum(share, 1.0)).astype(np.int64)
    gap = np.clip(np.maximum(from_looks, row["gap"].astype(np.int64)), 0, row["ns"].astype(np.int64))
    found: NDArray[np.uint64] = gap.astype(np.uint64)
    return found
