"""What the traced threads call per second, from the counters of the kernel side.

While some operations are watched only a part of the time, their rates come from the times
they were: a look is from one opening to its closing. How much looks differ says how far
an estimate from them may be off.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingero.agent.control import Load
from ingero.attach.cost import HitCost
from ingero.capture.costs import GROUPS, PASSED, RECORDS, WALK_NS, Costs, Reading

MEMORY_NS = 1_000_000_000  # how long what a thread did counts
SHORTEST_NS = 5_000_000  # a look
LOOKS = 12
SWITCH_NS = 700  # what the scheduler's programs add to a context switch: docs/overhead.md
IDLE = 1e-3  # calls per second


@dataclass(frozen=True, slots=True)
class Look:
    """One time governed operations were watched: by process."""

    rates: dict[int, float]  # calls per second
    slowed: dict[int, float]  # part of the time of the thread that it slowed most


class Looks:
    """Rates by thread, and the last looks."""

    def __init__(self, costs: Costs, cost: HitCost, now_ns: int) -> None:
        self._costs, self._cost = costs, cost
        self._mark, self._mark_ns = costs.read(), now_ns
        self._look, self._look_ns = self._mark, now_ns
        self._seen_ns = now_ns
        self._calls: dict[int, NDArray[np.float64]] = {}  # by thread
        self._detail: dict[int, float] = {}
        self._pids: dict[int, int] = {}
        self._looks: deque[Look] = deque(maxlen=LOOKS)
        self.switches: dict[int, float] = {}  # by thread, per second; told once a second

    def skip(self, now_ns: int) -> None:
        """What was since the last time does not count: not all was watched."""
        self._mark, self._mark_ns = self._costs.read(), now_ns
        self._look, self._look_ns = self._mark, now_ns

    def take(self, now_ns: int, detail: int) -> None:
        """Everything was watched since the last time, but for calls that were counted alone."""
        reading = self._costs.read()
        change, ns = reading.since(self._mark), now_ns - self._mark_ns
        if ns < SHORTEST_NS:
            return
        weight = 1 - math.exp(-(now_ns - self._seen_ns) / MEMORY_NS)
        calls = (change[:, :GROUPS] + change[:, GROUPS : 2 * GROUPS]) * (1e9 / ns)
        detail_ns = change[:, RECORDS] * self._cost.record_ns + change[:, WALK_NS]
        for at, tid in enumerate(reading.tids.tolist()):
            if change[at].any() or tid in self._calls:
                before = self._calls.get(tid, np.zeros(GROUPS))
                self._calls[tid] = before + weight * (calls[at] - before)
                share = float(detail_ns[at]) / ns * 4**detail
                self._detail[tid] = self._detail.get(tid, 0.0) * (1 - weight) + weight * share
                self._pids[tid] = int(reading.pids[at])
        alive = set(reading.tids.tolist())
        for tid in [tid for tid, rates in self._calls.items() if tid not in alive or rates.sum() < IDLE]:
            del self._calls[tid], self._detail[tid], self._pids[tid]
        self._mark, self._mark_ns, self._seen_ns = reading, now_ns, now_ns

    def close(self, now_ns: int, groups: Collection[int], waits: dict[int, float]) -> None:
        """A look ends; `waits`: by thread, part of it spent waiting for the GPU anyway."""
        reading, ns = self._costs.read(), now_ns - self._look_ns
        if ns < SHORTEST_NS:
            return
        change = reading.since(self._look)
        chosen = sorted(int(group) for group in groups)
        timed, counted = change[:, chosen].sum(axis=1), change[:, [GROUPS + at for at in chosen]].sum(axis=1)
        rates: dict[int, float] = defaultdict(float)
        slowed: dict[int, float] = {}
        for at in np.flatnonzero(timed + counted).tolist():
            pid, tid = int(reading.pids[at]), int(reading.tids[at])
            rates[pid] += float(timed[at] + counted[at]) * 1e9 / ns
            took = (timed[at] * self._cost.ns + counted[at] * self._cost.counted_ns) / ns
            slowed[pid] = max(slowed.get(pid, 0.0), float(took) - waits.get(tid, 0.0), 0.0)
        self._looks.append(Look(dict(rates), slowed))

    def forget_looks(self) -> None:
        """They were made in another way."""
        self._looks.clear()

    @property
    def count(self) -> int:
        return len(self._looks)

    def spread(self) -> dict[int, float]:
        """Of each process's rate between looks, of its mean."""
        pids = {pid for look in self._looks for pid in look.rates}
        found = {}
        for pid in pids:
            rates = [look.rates.get(pid, 0.0) for look in self._looks]
            found[pid] = float(np.std(rates, ddof=1) / np.mean(rates)) if len(rates) > 1 else 0.5
        return found

    def slowed(self) -> dict[int, float]:
        pids = {pid for look in self._looks for pid in look.slowed}
        return {pid: float(np.mean([look.slowed.get(pid, 0.0) for look in self._looks])) for pid in pids}

    def worst(self) -> tuple[int, int, Load] | None:
        """The thread that would cost most to watch in full: its process, it, and what it does."""
        if not self._calls:
            return None
        share = {
            tid: rates.sum() * self._cost.ns / 1e9 + self._detail[tid] for tid, rates in self._calls.items()
        }
        tid = max(share, key=lambda each: share[each])
        switches = self.switches.get(tid, 0.0) * SWITCH_NS / 1e9
        load = Load(tuple(self._calls[tid].tolist()), self._detail[tid], switches)
        return self._pids[tid], tid, load


def spent_ns(change: NDArray[np.int64], cost: HitCost) -> NDArray[np.float64]:
    """What hits took, by thread."""
    ns: NDArray[np.float64] = (
        change[:, :GROUPS].sum(axis=1) * cost.ns
        + change[:, GROUPS : 2 * GROUPS].sum(axis=1) * cost.counted_ns
        + change[:, PASSED] * cost.passed_ns
        + change[:, RECORDS] * cost.record_ns
        + change[:, WALK_NS]
    )
    return ns


def hits(change: NDArray[np.int64]) -> int:
    return int(change[:, : PASSED + 1].sum())


__all__ = ["Look", "Looks", "Reading", "hits", "spent_ns"]
