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
from ingero.model.governor import Pace
from ingero.model.layout import Group

MEMORY_NS = 500_000_000  # how long what a thread did counts
SHORTEST_NS = 5_000_000
LOOKS = 12
SWITCH_NS = 700  # what the scheduler's programs add to a context switch: docs/overhead.md
IDLE = 1e-3  # calls per second
ENOUGH = 30  # calls always watched, in all looks: to go by them
UNKNOWN = 0.5
RECENT = 4  # looks that agree: about two seconds
OTHERWISE = 2.0  # times the calls of before, in each of them: the job does something else now
STEADY = 2 * LOOKS  # looks after which it may be another again
TOO_SHORT_NS = 2_000_000  # on a core: says nothing of a rate


@dataclass(frozen=True, slots=True)
class Look:
    """One time governed operations were watched: by process."""

    calls: dict[int, int]
    always: dict[int, int]  # calls that are always watched
    cpu_ns: dict[int, int]  # on a core
    took_ns: dict[int, float]  # of that: watching


class Looks:
    """Rates by thread, and the last looks."""

    def __init__(self, costs: Costs, cost: HitCost, now_ns: int) -> None:
        self._costs, self._cost = costs, cost
        self._mark, self._mark_ns = costs.read(), now_ns
        self._look, self._look_ns = self._mark, now_ns
        self._seen_ns = now_ns
        # Records and stacks count over all the time: each look begins with some, and so has more of them.
        self._detail_mark, self._detail_mark_ns = self._mark, now_ns
        self._calls: dict[int, NDArray[np.float64]] = {}  # by thread
        self._detail: dict[int, float] = {}  # what records and stacks take of it
        self._whole_detail: dict[int, float] = {}  # the same when all of them were last asked for
        self._level = 0  # of detail
        self._level_ns = 0  # watched at it
        self._pids: dict[int, int] = {}
        self._looks: deque[Look] = deque(maxlen=LOOKS)
        self._since_change = STEADY  # looks since the job was last seen to do something else
        self.switches: dict[int, float] = {}  # by thread, per second; told once a second
        self.at_once: dict[int, float] = {}  # by process: how many of its threads are on a core, 1 or more

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
        passed_ns = now_ns - self._seen_ns
        weight = 1 - math.exp(-passed_ns / MEMORY_NS)
        calls = self._calls_in(change) * (1e9 / ns)
        detail_shares = self._detail_shares(reading, now_ns)
        changed = detail != self._level
        if changed:  # what was seen at another level says nothing of this one
            self._level, self._detail, self._level_ns = detail, {}, 0
        else:
            self._level_ns += passed_ns
        # A single stack may take a fiftieth of so short a time: at first all there is counts alike.
        detail_weight = max(weight, passed_ns / max(self._level_ns, 1))
        for at, tid in enumerate(reading.tids.tolist()):
            if change[at].any() or tid in self._calls:
                before = self._calls.get(tid, calls[at])  # a new thread is what it does
                self._calls[tid] = before + weight * (calls[at] - before)
                if not changed:
                    self._note_detail(tid, float(detail_shares[at]), min(detail_weight, 1.0))
                self._pids[tid] = int(reading.pids[at])
        alive = set(reading.tids.tolist())
        for tid in [tid for tid, rates in self._calls.items() if tid not in alive or rates.sum() < IDLE]:
            for known in (self._calls, self._detail, self._whole_detail, self._pids):
                known.pop(tid, None)
        self._mark, self._mark_ns, self._seen_ns = reading, now_ns, now_ns

    def _calls_in(self, change: NDArray[np.int64]) -> NDArray[np.float64]:
        """By group; other programs on launches (Session.invite) as so many launches more."""
        calls = (change[:, :GROUPS] + change[:, GROUPS : 2 * GROUPS]).astype(np.float64)
        calls[:, Group.GROUP_LAUNCH] += change[:, PASSED] * (self._cost.passed_ns / self._cost.ns)
        return calls

    def _detail_shares(self, reading: Reading, now_ns: int) -> NDArray[np.float64]:
        change = reading.since(self._detail_mark)
        shares = detail_ns(change, self._cost) / max(now_ns - self._detail_mark_ns, 1)
        self._detail_mark, self._detail_mark_ns = reading, now_ns
        return shares

    def _note_detail(self, tid: int, share: float, weight: float) -> None:
        self._detail[tid] = self._detail.get(tid, share) * (1 - weight) + weight * share
        if not self._level:
            self._whole_detail[tid] = self._detail[tid]

    def _whole(self, tid: int) -> float:
        """With all detail; where it was never seen so, as if each level had a quarter of the one before."""
        now = self._detail.get(tid, 0.0)
        known = self._whole_detail.get(tid)
        return now * float(4**self._level) if known is None else max(known, now)

    def close(self, groups: Collection[int], cpu_ns: dict[int, int]) -> None:
        """A look ends; `cpu_ns`: what each process had of a core meanwhile."""
        reading = self._costs.read()
        change = reading.since(self._look)
        chosen = sorted(int(group) for group in groups)
        timed, counted = change[:, chosen].sum(axis=1), change[:, [GROUPS + at for at in chosen]].sum(axis=1)
        calls: dict[int, int] = defaultdict(int)
        took: dict[int, float] = defaultdict(float)
        for at in np.flatnonzero(timed + counted).tolist():
            pid = int(reading.pids[at])
            calls[pid] += int(timed[at] + counted[at])
            took[pid] += float(timed[at] * self._cost.ns + counted[at] * self._cost.counted_ns)
            took[pid] += float(change[at, PASSED] * self._cost.passed_ns)
        self._looks.append(Look(dict(calls), always_watched(reading, change), cpu_ns, dict(took)))

    def __len__(self) -> int:
        return len(self._looks)

    def forget_looks(self) -> None:
        """They were made in another way."""
        self._looks.clear()

    def forget_what_was(self) -> bool:
        """Whether the last few looks show a process doing something else than those before, which go."""
        self._since_change += 1
        recent, before = list(self._looks)[-RECENT:], list(self._looks)[:-RECENT]
        # One that goes on changing has phases: then how far looks differ says how far an estimate may be off.
        if not before or self._since_change < STEADY:
            return False
        if not any(_differs(before, recent, pid) for pid in recent[-1].cpu_ns):
            return False
        self._looks = deque(recent, maxlen=LOOKS)
        self._since_change = 0
        return True

    def processes(self) -> dict[int, Pace]:
        """How steady each process is."""
        return {pid: self._pace(pid) for pid in {pid for look in self._looks for pid in look.calls}}

    def _pace(self, pid: int) -> Pace:
        calls, always, cpu_ns, took_ns = (
            np.array([each.get(pid, 0) for each in values], np.float64)
            for values in zip(
                *((look.calls, look.always, look.cpu_ns, look.took_ns) for look in self._looks), strict=True
            )
        )
        slowed = float(took_ns.sum() / max(cpu_ns.sum(), 1.0))
        spread = _spread(calls, cpu_ns)
        if always.sum() >= ENOUGH:
            by_calls = _spread(calls, always)
            if by_calls <= max(spread, slowed):
                return Pace(by_calls, len(calls), by_calls=True)
        return Pace(spread, len(calls), slowed)

    def worst(self) -> tuple[int, int, Load] | None:
        """The process that watching in full would slow most, its hottest thread, and what it does.

        Threads that take turns slow each other's work: what watching takes of them adds up.
        """
        if not self._calls:
            return None
        share = {
            tid: rates.sum() * self._cost.ns / 1e9 + self._whole(tid) for tid, rates in self._calls.items()
        }
        slowed: dict[int, float] = defaultdict(float)
        for tid, part in share.items():
            slowed[self._pids[tid]] += part / self.at_once.get(self._pids[tid], 1.0)
        pid = max(slowed, key=lambda each: slowed[each])
        mine = [tid for tid in share if self._pids[tid] == pid]
        at_once = self.at_once.get(pid, 1.0)
        calls = np.sum([self._calls[tid] for tid in mine], axis=0) / at_once
        whole = sum(self._whole(tid) for tid in mine) / at_once
        now = sum(self._detail.get(tid, 0.0) for tid in mine) / at_once
        switches = sum(self.switches.get(tid, 0.0) for tid in mine) * SWITCH_NS / 1e9 / at_once
        load = Load(tuple(calls.tolist()), now, switches, self._level, whole)
        return pid, max(mine, key=lambda tid: share[tid]), load


def _differs(before: list[Look], recent: list[Look], pid: int) -> bool:
    """All recent looks at a process on the same side of those before, far off."""
    cpu_ns = sum(look.cpu_ns.get(pid, 0) for look in before)
    if cpu_ns < TOO_SHORT_NS or any(look.cpu_ns.get(pid, 0) < TOO_SHORT_NS for look in recent):
        return False
    usual = sum(look.calls.get(pid, 0) for look in before) / cpu_ns
    rates = [look.calls.get(pid, 0) / look.cpu_ns[pid] for look in recent]
    if sum(look.calls.get(pid, 0) for look in (*before, *recent)) < ENOUGH:
        return False
    return min(rates) > OTHERWISE * usual or max(rates) * OTHERWISE < usual


def spent_ns(change: NDArray[np.int64], cost: HitCost) -> NDArray[np.float64]:
    """What hits took, by thread."""
    ns: NDArray[np.float64] = (
        change[:, :GROUPS].sum(axis=1) * cost.ns
        + change[:, GROUPS : 2 * GROUPS].sum(axis=1) * cost.counted_ns
        + change[:, PASSED] * cost.passed_ns
    )
    return ns + detail_ns(change, cost)


def detail_ns(change: NDArray[np.int64], cost: HitCost) -> NDArray[np.float64]:
    """What records and stacks took, by thread."""
    ns: NDArray[np.float64] = (change[:, RECORDS] * cost.record_ns + change[:, WALK_NS]).astype(np.float64)
    return ns


def always_watched(reading: Reading, change: NDArray[np.int64]) -> dict[int, int]:
    """Calls of operations that are never closed, by process."""
    calls = change[:, [int(Group.GROUP_OTHER), int(Group.GROUP_SYNC)]].sum(axis=1)
    found: dict[int, int] = {}
    for at in np.flatnonzero(calls).tolist():
        pid = int(reading.pids[at])
        found[pid] = found.get(pid, 0) + int(calls[at])
    return found


def calls_by_group(reading: Reading, change: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """Calls counted, by process."""
    found: dict[int, NDArray[np.int64]] = {}
    calls = change[:, :GROUPS] + change[:, GROUPS : 2 * GROUPS]
    for at in np.flatnonzero(calls.any(axis=1)).tolist():
        pid = int(reading.pids[at])
        found[pid] = found[pid] + calls[at] if pid in found else calls[at]
    return found


def _spread(values: NDArray[np.float64], base: NDArray[np.float64]) -> float:
    """How much the ratio of two varies, relative, by how much of the base each look had."""
    if len(values) < 2 or not values.sum() or not base.sum():
        return UNKNOWN
    off = values - base * (values.sum() / base.sum())
    return float(np.sqrt((off**2).sum() / (len(values) - 1)) / values.mean())


def hits(change: NDArray[np.int64]) -> int:
    return int(change[:, : PASSED + 1].sum())
