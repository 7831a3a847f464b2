"""What the traced processes call per second, function by function, from the counters of the kernel side.

Calls and the time they were watched in are added up and forgotten alike, so a rate is calls over time
whatever a job does in bursts: a burst that falls into a short on-period does not count for more than it is.
"""

from __future__ import annotations

import math
import mmap
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingero.governor.policy import Load, step_ns
from ingero.governor.seen import METERS, OTHERS, Aligned, CallingPace, StepsBy
from ingero.model import layout
from ingero.model.hit_cost import HitCost
from ingero.model.layout import Capacity
from ingero.model.window import Records

MEMORY_NS = 1_000_000_000  # how long what a thread did counts
ON_MEMORY_NS = 400_000_000  # of time watched, for functions that are watched a part of it
OFF_MEMORY_NS = 5_000_000_000  # and of time that passes meanwhile
SHORTEST_NS = 5_000_000
SWITCH_NS = 700  # what the scheduler's programs add to a context switch: docs/overhead.md
IDLE = 1e-3  # calls per second
MANY = METERS // 2
OFTEN = 200.0  # calls per second: a function gets a meter of its own
# While there are many meters left, a function that is called all the time gets one, too: others may keep
# step with it. A start makes bursts of calls that never come again.
REGULAR_NS = 40_000_000
REGULAR_TIMES = 6


def _none() -> NDArray[np.float64]:
    return np.zeros(METERS)


@dataclass(slots=True)
class ThreadRates:
    """Calls by meter, and the time in which they would have been seen; what records and stacks took."""

    pid: int
    calls: NDArray[np.float64] = field(default_factory=_none)
    watched_ns: NDArray[np.float64] = field(default_factory=_none)
    detail_ns: float = 0.0
    lived_ns: float = 0.0

    def rates(self) -> NDArray[np.float64]:
        """Calls a second."""
        found: NDArray[np.float64] = self.calls * 1e9 / np.maximum(self.watched_ns, 1.0)
        return found

    def detail_share(self) -> float:
        return self.detail_ns / max(self.lived_ns, 1.0)


class Rates:
    """By thread, and of the process that watching costs most."""

    def __init__(self, counters: Counters, cost: HitCost, now_ns: int) -> None:
        self._counters, self._cost = counters, cost
        self._mark, self._mark_ns = counters.read(), now_ns
        self._hits, self._hits_ns = counters.hits(), now_ns
        self._looked, self._looked_ns = self._hits, now_ns
        self._times = np.zeros(len(self._hits), np.int64)  # looks in a row that saw the function called
        self._threads: dict[int, ThreadRates] = {}
        self.meters: dict[int, int] = {}  # by function
        self.spent_ns: dict[int, float] = {}  # by process, in what was taken last
        self.switches: dict[int, float] = {}  # by thread, per second; told once a second
        self.at_once: dict[int, float] = {}  # by process: how many of its threads are on a core, 1 or more

    def skip(self, now_ns: int) -> None:
        """What was since the last time does not count: it is not known how it was watched."""
        self._mark, self._mark_ns = self._counters.read(), now_ns

    def pending_ns(self) -> float:
        """What hits took since the last time."""
        return float(hit_ns(self._counters.read().since(self._mark), self._cost).sum())

    def take(self, now_ns: int, cycled: Collection[int] = (), on: bool = True) -> bool:
        """What was done since the last time; whether that was long enough. `on`: cycled ones were watched."""
        passed_ns = now_ns - self._mark_ns
        if passed_ns < SHORTEST_NS:
            return False
        reading = self._counters.read()
        change = reading.since(self._mark)
        part = np.zeros(METERS, bool)
        part[[self.meters[each] for each in cycled if each in self.meters]] = True
        keep = np.where(part, _kept(passed_ns, OFF_MEMORY_NS), _kept(passed_ns, MEMORY_NS))
        seen = np.where(part, float(on), 1.0)
        if on:
            keep = np.where(part, keep * _kept(passed_ns, ON_MEMORY_NS), keep)
        made, detail = calls(change), detail_ns(change, self._cost)
        made[:, self._hottest()] += np.rint(change[:, PASSED] * self._cost.passed_ns / self._cost.ns).astype(
            np.int64
        )
        for at, tid in enumerate(reading.tids.tolist()):
            if tid not in self._threads and not change[at].any():
                continue
            mine = self._threads.setdefault(tid, ThreadRates(int(reading.pids[at])))
            mine.calls = mine.calls * keep + made[at] * seen
            mine.watched_ns = mine.watched_ns * keep + passed_ns * seen
            mine.detail_ns = mine.detail_ns * _kept(passed_ns, MEMORY_NS) + float(detail[at])
            mine.lived_ns = mine.lived_ns * _kept(passed_ns, MEMORY_NS) + passed_ns
        self._forget(set(reading.tids.tolist()))
        spent = reading.by_process(hit_ns(change, self._cost) + detail)
        self.spent_ns = {pid: ns / self.at_once.get(pid, 1.0) for pid, ns in spent.items()}
        self._mark, self._mark_ns = reading, now_ns
        return True

    def _hottest(self) -> int:
        """The meter that other programs on functions (Session.add_extra) count at: they are off with it."""
        total = np.sum([each.calls for each in self._threads.values()], axis=0) if self._threads else _none()
        return int(np.argmax(total))

    def _forget(self, alive: set[int]) -> None:
        gone = [tid for tid, each in self._threads.items() if tid not in alive or each.rates().sum() < IDLE]
        for tid in gone:
            del self._threads[tid]

    def by_process(self) -> dict[int, NDArray[np.float64]]:
        """Calls a second by meter."""
        found: dict[int, NDArray[np.float64]] = {}
        for each in self._threads.values():
            found[each.pid] = found.get(each.pid, _none()) + each.rates()
        return found

    def new_meters(self, now_ns: int, waits: Collection[int] = ()) -> dict[int, int]:
        """Functions that turn out to be called often, and the meter each is to be counted at from now on.

        Waits for the GPU get one as long as there are many: what is not seen is told by them.
        """
        passed_ns = now_ns - self._hits_ns
        if passed_ns < SHORTEST_NS:
            return {}
        now = self._counters.hits()
        rates = (now - self._hits) * 1e9 / passed_ns
        self._hits, self._hits_ns = now, now_ns
        free = sorted(set(range(METERS)) - {OTHERS} - set(self.meters.values()))
        known = [each for each in waits if rates[each] > 0 and len(free) > MANY]
        wanted = (rates >= OFTEN) | (self._regular(now, now_ns) & (len(free) > MANY))
        often = [
            each
            for each in np.argsort(-rates).tolist()
            if (wanted[each] or each in known) and each not in self.meters
        ]
        found = dict(zip(often, free, strict=False))
        if found:  # what they did so far is among the others
            for each in self._threads.values():
                each.calls[OTHERS] = each.watched_ns[OTHERS] = 0.0
        self.meters |= found
        return found

    def _regular(self, now: NDArray[np.int64], now_ns: int) -> NDArray[np.bool_]:
        """Functions that were called in each of the last looks."""
        if now_ns - self._looked_ns >= REGULAR_NS:
            self._times = np.where(now > self._looked, self._times + 1, 0)
            self._looked, self._looked_ns = now, now_ns
        regular: NDArray[np.bool_] = self._times >= REGULAR_TIMES
        return regular

    def worst(self) -> tuple[int, int, Load] | None:
        """The process that watching in full would slow most, its hottest thread, and what is to be fitted.

        Threads that take turns slow each other's work: what watching takes of them adds up. The budget is
        every process's: what is fitted calls each function as often as whoever calls it most.
        """
        if not self._threads:
            return None
        share: dict[int, dict[int, float]] = defaultdict(dict)  # by process and thread
        for tid, each in self._threads.items():
            share[each.pid][tid] = float(each.rates().sum()) * self._cost.ns / 1e9 + each.detail_share()
        slowed = {pid: sum(tids.values()) / self.at_once.get(pid, 1.0) for pid, tids in share.items()}
        pid = max(slowed, key=lambda each: slowed[each])
        loads = [self._load(list(tids), self.at_once.get(each, 1.0)) for each, tids in share.items()]
        return pid, max(share[pid], key=lambda tid: share[pid][tid]), _hardest(loads)

    def _load(self, tids: list[int], at_once: float) -> Load:
        rates = np.sum([self._threads[tid].rates() for tid in tids], axis=0) / at_once
        by_function = {
            each: float(rates[meter]) for each, meter in self.meters.items() if rates[meter] > IDLE
        }
        detail = sum(self._threads[tid].detail_share() for tid in tids) / at_once
        switches = sum(self.switches.get(tid, 0.0) for tid in tids) * SWITCH_NS / 1e9 / at_once
        return Load(by_function, float(rates[OTHERS]), detail, switches)


def _hardest(loads: list[Load]) -> Load:
    """What is as hard to watch as each of these."""
    functions = {function for load in loads for function in load.calls}
    return Load(
        {function: max(load.calls.get(function, 0.0) for load in loads) for function in functions},
        max(load.others for load in loads),
        max(load.detail_share for load in loads),
        max(load.fixed_share for load in loads),
    )


def _kept(passed_ns: float, memory_ns: float) -> float:
    """Of what was known before."""
    return math.exp(-passed_ns / memory_ns)


# What tracing took of each thread so far, read from memory shared with the kernel side: no system call.


THREADS = int(Capacity.THREADS)  # of thread_costs
OPERATIONS = int(Capacity.OPS)  # of op_hits
NUMBERS = 2 * METERS + 4  # timed and counted by meter, passed, records, walks, walk_ns
PASSED, RECORDS, WALKS, WALK_NS = range(2 * METERS, NUMBERS)


def _mapped(fd: int, size: int) -> mmap.mmap:
    return mmap.mmap(fd, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ)


class Counters:
    """Hits by thread and meter, and of functions without a meter of their own."""

    def __init__(self, thread_costs: int, op_hits: int) -> None:
        self._memory = _mapped(thread_costs, THREADS * layout.THREAD_COST.itemsize)
        self._rows: Records = np.frombuffer(self._memory, layout.THREAD_COST, THREADS)
        self._hits_memory = _mapped(op_hits, OPERATIONS * 8)
        self._hits: NDArray[np.uint64] = np.frombuffer(self._hits_memory, np.uint64, OPERATIONS)

    def read(self) -> CounterReading:
        used = np.flatnonzero(self._rows["tid"])
        return CounterReading(used, self._rows[used].copy())

    def hits(self) -> NDArray[np.int64]:
        """By operation."""
        return self._hits.astype(np.int64)

    def close(self) -> None:
        self._rows, self._hits = np.zeros(0, layout.THREAD_COST), np.zeros(0, np.uint64)
        self._memory.close()
        self._hits_memory.close()


class CounterReading:
    """All threads' counters at one moment."""

    def __init__(self, slots: NDArray[np.int64], rows: Records) -> None:
        self.tids: NDArray[np.int64] = rows["tid"].astype(np.int64)
        self.pids: NDArray[np.int64] = rows["pid"].astype(np.int64)
        self.numbers = np.zeros((len(rows), NUMBERS), np.int64)
        self.numbers[:, :METERS] = rows["timed"]
        self.numbers[:, METERS : 2 * METERS] = rows["counted"]
        for at, name in ((PASSED, "passed"), (RECORDS, "records"), (WALKS, "walks"), (WALK_NS, "walk_ns")):
            self.numbers[:, at] = rows[name]
        self._slots = slots

    def since(self, before: CounterReading | None) -> NDArray[np.int64]:
        """What was added, in the order of this reading; a slot may have got another thread."""
        if before is None or not len(before.tids):
            return self.numbers
        place = np.searchsorted(before._slots, self._slots)
        place[place == len(before._slots)] = 0
        same = (before._slots[place] == self._slots) & (before.tids[place] == self.tids)
        change: NDArray[np.int64] = self.numbers - np.where(same[:, None], before.numbers[place], 0)
        counts = change[:, : 2 * METERS]
        counts[counts < -(1 << 31)] += 1 << 32  # these wrap
        return np.maximum(change, 0)

    def by_thread(self, values: NDArray[np.int64] | NDArray[np.float64]) -> dict[int, int]:
        """Something computed of each thread, in the order of this reading."""
        return dict(zip(self.tids.tolist(), values.astype(np.int64).tolist(), strict=True))

    def by_process(self, values: NDArray[np.int64] | NDArray[np.float64]) -> dict[int, float]:
        """The same, summed over the threads of a process."""
        found: dict[int, float] = {}
        for at in np.flatnonzero(values).tolist():
            pid = int(self.pids[at])
            found[pid] = found.get(pid, 0.0) + float(values[at])
        return found

    def vectors(self, rows: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
        """Rows of threads, summed over those of a process."""
        found: dict[int, NDArray[np.int64]] = {}
        for at in np.flatnonzero(rows.any(axis=1)).tolist():
            pid = int(self.pids[at])
            found[pid] = found[pid] + rows[at] if pid in found else rows[at]
        return found


def calls(change: NDArray[np.int64]) -> NDArray[np.int64]:
    """By thread and meter, timed or not."""
    found: NDArray[np.int64] = change[:, :METERS] + change[:, METERS : 2 * METERS]
    return found


def untimed(change: NDArray[np.int64]) -> NDArray[np.int64]:
    """Calls counted alone, by thread."""
    found: NDArray[np.int64] = change[:, METERS : 2 * METERS].sum(axis=1)
    return found


def hit_ns(change: NDArray[np.int64], cost: HitCost) -> NDArray[np.float64]:
    """What hits took, by thread."""
    found: NDArray[np.float64] = (
        change[:, :METERS].sum(axis=1) * cost.ns
        + untimed(change) * cost.counted_ns
        + change[:, PASSED] * cost.passed_ns
    )
    return found


def detail_ns(change: NDArray[np.int64], cost: HitCost) -> NDArray[np.float64]:
    """What records and stacks took, by thread."""
    found: NDArray[np.float64] = (change[:, RECORDS] * cost.record_ns + change[:, WALK_NS]).astype(np.float64)
    return found


def hits(change: NDArray[np.int64]) -> int:
    return int(change[:, : PASSED + 1].sum())


# What a job's calls keep step with: how many lie between two calls of a function that is always watched.
#
# Counted from one look to another, each at a moment at which that function had just been called: so no
# step counts in part, however short the on-period.


class InStep:
    """In one on-period after the other."""

    def __init__(self, counters: Counters, rates: Rates) -> None:
        self._counters, self._rates = counters, rates
        self._anchors: set[tuple[int, int]] = (
            set()
        )  # processes, and the meter that their calls keep step with
        self._aligned: dict[tuple[int, int], Aligned] = {}  # by process and meter
        self.mark = counters.read()  # when it began

    def begin(self) -> None:
        self.mark, self._aligned = self._counters.read(), {}

    def look(self, counters: CounterReading, unseen: Collection[int]) -> None:
        """At what was called so far; `unseen`: meters that are not watched all the time."""
        for pid, made in counters.vectors(calls(counters.since(self.mark))).items():
            for meter in np.flatnonzero(made).tolist():
                if meter not in unseen:
                    self._aligned.setdefault((pid, meter), Aligned()).note(int(made[meter]), made)

    def seen(self, cycled: frozenset[int]) -> StepsBy:
        """Of every function against every other that is always watched: any may have to be watched less."""
        unseen = {self._rates.meters[each] for each in cycled if each in self._rates.meters}
        return {
            (pid, function, anchor): aligned.steps(meter)
            for (pid, anchor), aligned in self._aligned.items()
            for function, meter in self._rates.meters.items()
            if anchor not in unseen and anchor != meter
        }

    def learn(self, paces: dict[tuple[int, int], CallingPace]) -> None:
        self._anchors = {(pid, each.anchor) for (pid, _), each in paces.items() if each.anchor is not None}

    def step_ns(self, unseen: Collection[int]) -> float:
        """How long a step takes, the longest of the processes; 0: nothing tells."""
        always = set(range(METERS)) - {OTHERS, *unseen}
        found = 0.0
        for pid, rates in self._rates.by_process().items():
            known = {meter for owner, meter in self._anchors if owner == pid} & always
            found = max(found, step_ns(rates, known or always))
        return found
