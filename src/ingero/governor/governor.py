"""Acts on what the policy decides: measures, tells the kernel side, and takes probes off and on again.

Probes of cycled functions go off and on at times nobody can foresee: a period would meet the
job's own. While they are off their calls are not seen at all; what windows then lack is
estimated from the rest (counts.py, thread_time.py) and marked.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ingero.attach.kernel import Detail, KernelSide
from ingero.attach.probes import ROWS
from ingero.attach.session import File, Session
from ingero.governor.counts import Estimator
from ingero.governor.policy import (
    ALL,
    FEWER_WALKS,
    LONGEST_PAUSE_NS,
    WALKS,
    Controller,
    Means,
    Watch,
    actions_between,
    period_ns,
    turn_ns,
    watched_less,
    whole_steps_ns,
)
from ingero.governor.rates import (
    SWITCH_NS,
    CounterReading,
    Counters,
    InStep,
    Rates,
    calls,
    detail_ns,
    hit_ns,
    hits,
    untimed,
)
from ingero.governor.seen import (
    METERS,
    OTHERS,
    UNSEEN_WAIT,
    Base,
    Called,
    Period,
    Periods,
    SeenTime,
    Steps,
    StepsBy,
    Watched,
    own_ns,
)
from ingero.governor.thread_time import ThreadEstimator
from ingero.model.hit_cost import HitCost
from ingero.model.layout import Bucket, HeaderFlag
from ingero.model.window import GovernorAction, Records, Window

TAKE_NS = 50_000_000
# An on-period is looked at so often: where amid its calls a step ended is known as well as that.
LOOKS, LEAST_LOOK_NS, MOST_LOOK_NS = 20, 1_000_000, 10_000_000
RETURNS_S = 0.001  # calls in flight come back meanwhile: their returns are still seen
# A record without its stack costs little, and one for each iteration of a loop tells a long one.
STEPS_PER_SECOND = 250
SAMPLED_LESS = 4
TURNS = 2  # threads of a process that take turns, as forward and backward do: each has its part of the walks
ANOTHER_JOB = 5  # times the calls; what a short period shows may be off by two
FEW_PERIODS = 4
LEAST_WALL_NS = 200_000_000  # of a thread, to say what tracing cost it
WAITS = frozenset(number for number, row in enumerate(ROWS, start=1) if row.sync)
# How much a function's calls tell one by one, by what it does: what tells most is spared first.
TELLS = {"event": 1, "poll": 1, "set": 2, "copy": 2, "alloc": 3, "free": 3, "sync": 4}
TELLING = {number: TELLS.get(row.kind, 0) for number, row in enumerate(ROWS, start=1)}
WHOLE = frozenset(
    number for number, row in enumerate(ROWS, start=1) if row.layer == "nccl" or row.kind == "context"
)


class Governor:
    """One trace's."""

    def __init__(
        self,
        kernel: KernelSide,
        session: Session,
        cost: HitCost,
        budget: float | None,
        paths: Callable[[], Mapping[File, str]],
        chance: random.Random | None = None,
    ) -> None:
        now_ns = time.monotonic_ns()
        self._kernel, self._session, self._cost, self._paths = kernel, session, cost, paths
        self._chance = chance or random.Random()
        self._counters = Counters(kernel.maps["thread_costs"], kernel.maps["op_hits"])
        self._rates, self._periods = Rates(self._counters, cost, now_ns), Periods()
        means = Means(cost, cost.shape != "perf", WAITS, WHOLE, TELLING)
        self._controller = Controller(budget, means) if budget is not None else None
        self._number = 0  # settings.watch
        self._next_take_ns = now_ns
        self._taken_ns = now_ns
        self._until_ns = 0  # of the on-period or the off-period, while there are such
        self._period_from_ns = now_ns
        self._period_cpu_ns: dict[int, int] = {}  # by process, since then
        self._in_step = InStep(self._counters, self._rates)
        self._on_ns: int | None = now_ns  # since when everything is watched
        self._ons_ns = 0  # of the window so far
        self._turns = 0  # probes put on again, in it
        self._cycled: frozenset[int] = frozenset()  # at some time of the window
        self._mark = kernel.read_threads()
        self._mark_on_ns: int | None = None  # where the mark was read before everything was watched
        self._mark_counters = self._counters.read()
        self._window_counters = self._mark_counters
        self._seen: dict[int, SeenTime] = {}
        self._made: dict[int, NDArray[np.int64]] = {}  # calls by meter, by process, while all were watched
        self._look_ns = MOST_LOOK_NS
        self._steps: StepsBy = {}  # in this window
        self._read_ns = now_ns
        self._counts, self._threads = Estimator(), ThreadEstimator()
        self._calls = 0.0  # a second, of the worst process, at the last change
        self._changed = False  # what it does, in this window
        self._news: list[GovernorAction] = []
        self._tell()

    @property
    def watch(self) -> Watch:
        return self._controller.watch if self._controller else ALL

    # --- every ten milliseconds --------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        if self._controller is None:
            return
        self._session.retire(now_ns)
        often = self.watch.cycles or self._controller.overspends
        if self._on_ns is not None and (often or now_ns >= self._next_take_ns):
            self._in_step.look(self._counters.read(), self._cycled_meters())
        if self.watch.cycles and now_ns >= self._until_ns:
            if self._on_ns is None:
                self._begin()
            else:
                self._end()
        elif now_ns >= self._next_take_ns or self._rates.pending_ns() > self._controller.credit_ns / 2:
            self._next_take_ns = now_ns + TAKE_NS
            if self._take(now_ns):
                self._decide(now_ns)

    @property
    def look_ms(self) -> int:
        """How long it can be left alone."""
        ns = self._look_ns if self.watch.cycles and self._on_ns is not None else MOST_LOOK_NS
        return max(ns // 1_000_000, 1)

    def _take(self, now_ns: int) -> bool:
        """Whether enough was seen since the last time to decide by."""
        if not self._rates.take(now_ns, self.watch.cycled, self._on_ns is not None):
            return False
        assert self._controller is not None
        self._controller.spend(self._rates.spent_ns, now_ns - self._taken_ns)
        self._taken_ns = now_ns
        found = self._rates.new_meters(now_ns, WAITS)
        for function, meter in found.items():
            self._kernel.set_meter(function, meter)
        if found:  # what the others are is not what it was
            self._in_step.begin()
            self._period_cpu_ns = {}
            self._periods.forget_steps(OTHERS)
        return not found  # how often those are called is not known yet

    def _decide(self, now_ns: int) -> None:
        assert self._controller is not None
        worst = self._rates.worst()
        if worst is None:
            return
        pid, tid, load = worst
        before = self._controller.watch
        if self._controller.step(load, now_ns):
            self._notice(sum(load.calls.values()))
            self._news += actions_between(before, self._controller, load, pid, tid, now_ns)
            self._apply(before, self._controller.watch)

    def _notice(self, calls: float) -> None:
        """A job that calls far more often, or less, does something else: what was seen says nothing of it."""
        before, self._calls = self._calls, calls
        begun = len(self._periods) < FEW_PERIODS  # with those few it only begins to show what it does
        if before and not begun and not 1 / ANOTHER_JOB < calls / before < ANOTHER_JOB:
            self._periods.clear()
            self._changed = True

    def _apply(self, before: Watch, after: Watch) -> None:
        """Begins with everything on, unless only the time it is on changes."""
        if after.cycles and replace(before, share=0.0) == replace(after, share=0.0):
            return
        if self._on_ns is None:
            self._cycled |= before.cycled  # they were off in this window
            self._begin()
        first = None if before.cycles else self._in_step.seen(after.cycled)
        self._tell()  # before functions move: where a call has two ends, one may be of another link
        self._kernel.set_watched(before.thinned | before.cycled)
        if before.cycled != after.cycled:
            variants = self._session.set_apart(after.cycled, self._paths(), time.monotonic_ns())
            self._kernel.set_variants(variants)
        self._set(after)
        self._periods.forget_times(
            {self._rates.meters[each] for each in after.cycled if each in self._rates.meters}
        )
        self._periods.forget_steps(OTHERS)
        if first:  # until now everything was watched, and how its calls keep step was seen
            self._periods.add(Period(steps=first))
            self._steps |= first
        # or the first on-period had time of before it
        self._see(self._kernel.read_threads(), self._counters.read())
        self._mark_counters = self._counters.read()
        self._mark_on_ns = time.monotonic_ns()
        self._begin_period(self._mark_on_ns)

    def _set(self, watch: Watch, closed: bool = False) -> None:
        """How each function is watched from now on."""
        self._kernel.set_watched(watch.thinned - watch.cycled, watch.every)
        self._kernel.set_watched(watch.cycled & watch.thinned, watch.every, closed, cycled=True)
        self._kernel.set_watched(watch.cycled - watch.thinned, 1, closed, cycled=True)

    def _tell(self) -> None:
        """Even: nothing is closed."""
        if self._controller is None:
            return
        watch = self.watch
        if self._number == 0:
            self._number = 2 if watch != ALL else 0
        elif self._number % 2 != (self._on_ns is None):
            self._number += 1
        walks = (FEWER_WALKS if watch.less_detail else WALKS) * self._controller.budget / TURNS
        detail = (
            Detail(STEPS_PER_SECOND, walks, SAMPLED_LESS, True)
            if watch.less_detail
            else Detail(walk_share=walks)
        )
        self._kernel.watch(self._number, detail, bool(watch.cycled & WAITS))

    def _begin_period(self, now_ns: int) -> None:
        self._rates.skip(now_ns)
        self._next_take_ns = now_ns + TAKE_NS
        self._period_from_ns, self._period_cpu_ns = now_ns, {}
        self._in_step.begin()
        lasts_ns = period_ns(self.watch.share) * self._chance.uniform(0.6, 1.4)
        lasts_ns = max(
            lasts_ns, whole_steps_ns(self.watch.share, self._in_step.step_ns(self._cycled_meters()))
        )
        self._look_ns = min(max(int(lasts_ns / LOOKS), LEAST_LOOK_NS), MOST_LOOK_NS)
        self._until_ns = now_ns + int(lasts_ns)

    def _end(self) -> None:
        """Of an on-period."""
        watch, now_ns = self.watch, time.monotonic_ns()
        assert self._on_ns is not None
        lasted_ns = (
            now_ns - self._period_from_ns
        )  # longer than meant to where we were held up: so is the pause
        self._ons_ns += now_ns - max(self._on_ns, self._read_ns)
        enough = self._take(now_ns)
        counters = self._counters.read()  # after it: it may begin the steps anew
        self._on_ns = None
        self._set(watch, closed=True)
        self._tell()
        self._in_step.look(counters, self._cycled_meters())
        self._see(self._kernel.read_threads(), counters, now_ns)
        self._periods.add(self._period(counters))
        self._changed |= self._periods.forget_what_was()
        time.sleep(RETURNS_S)
        self._session.take_off()
        self._cycled |= watch.cycled
        off_ns = min(lasted_ns * (1 - watch.share) / watch.share, LONGEST_PAUSE_NS)
        self._until_ns = now_ns + int(off_ns * self._chance.uniform(0.6, 1.4))
        self._next_take_ns = now_ns + TAKE_NS
        if enough:
            self._decide(time.monotonic_ns())

    def _period(self, counters: CounterReading) -> Period:
        change = counters.since(self._in_step.mark)
        made = calls(change)
        took = counters.by_process(hit_ns(change, self._cost))
        found: Called = {}
        for function in self.watch.cycled:
            if meter := self._rates.meters.get(function):
                by_process = counters.by_process(made[:, meter])
                found |= {(pid, function): int(count) for pid, count in by_process.items()}
        steps = self._in_step.seen(self.watch.cycled)
        for key, each in steps.items():
            self._steps[key] = self._steps.get(key, Steps()) + each
        return Period(found, self._period_cpu_ns, took, steps)

    def _cycled_meters(self) -> list[int]:
        cycled = self._cycled | self.watch.cycled
        return [meter for function, meter in self._rates.meters.items() if function in cycled]

    def _begin(self) -> None:
        """An on-period."""
        self._take(time.monotonic_ns())
        self._session.put_on(self._paths())
        self._turns += 1
        self._mark = self._kernel.read_threads()
        self._set(self.watch)
        self._on_ns = time.monotonic_ns()
        self._tell()
        self._mark_counters = self._counters.read()
        self._on_ns = self._mark_on_ns = time.monotonic_ns()
        self._begin_period(self._on_ns)

    def stood_still(self, from_ns: int) -> None:
        """The probes were off since then, by no doing of ours: that time does not count."""
        now_ns = time.monotonic_ns()
        self._rates.skip(now_ns)
        self._until_ns += now_ns - from_ns
        self._period_from_ns += now_ns - from_ns

    def _see(self, totals: Records, counters: CounterReading, ended_ns: int | None = None) -> None:
        """Add up what threads did since the last time, all of it watched.

        Reading all threads takes a while, before an on-period and after it: what they did then is
        left out, or every one would seem to have fewer calls in its time than it had.
        """
        change = counters.since(self._mark_counters)
        for pid, made in counters.vectors(calls(change)).items():
            self._made[pid] = self._made.get(pid, 0) + made
        counted_of = counters.by_thread(untimed(change))
        detail_of = counters.by_thread(detail_ns(change, self._cost))
        before = {int(row["h"]["tid"]): row for row in self._mark}
        for row in totals:
            tid, pid = int(row["h"]["tid"]), int(row["h"]["pid"])
            if tid not in counted_of or not row["h"]["flags"] & HeaderFlag.H_FEEDER:
                continue
            ns, gap, tells = row["acc"].astype(np.int64), row["gap"].astype(np.int64), bool(row["known"])
            known = before.get(tid)
            if known is not None and known["h"]["start_ns"] == row["h"]["start_ns"]:
                ns, gap = ns - known["acc"].astype(np.int64), gap - known["gap"].astype(np.int64)
                inside = self._inside_period(int(known["now_ns"]), int(row["now_ns"]), ended_ns)
                ns, gap = (ns * inside).astype(np.int64), (gap * inside).astype(np.int64)
                tells = row["known"] != known["known"]
            ns = np.maximum(ns, 0)
            gap = np.clip(gap, 0, ns)  # a wait before the on-period may become known in it
            seen = SeenTime(ns, gap * tells, counted_of[tid], ns * tells, detail_of[tid])
            self._seen.setdefault(tid, SeenTime()).add(seen)
            if self.watch.cycles:  # else there are no periods, and this one would never end
                self._period_cpu_ns[pid] = self._period_cpu_ns.get(pid, 0) + self._work_ns(seen)
        self._mark, self._mark_counters, self._mark_on_ns = totals, counters, None

    def _inside_period(self, from_ns: int, to_ns: int, ended_ns: int | None) -> float:
        """Part of the time between two readings of a thread in which everything was watched."""
        begin = max(from_ns, self._mark_on_ns or from_ns)
        end = min(to_ns, ended_ns or to_ns)
        return max(end - begin, 0) / max(to_ns - from_ns, 1)

    def _on_core(self, ns: NDArray[np.int64]) -> int:
        """Where waits for the GPU are not always seen: what they may look like then counts as such, too."""
        if not self.watch.cycled & WAITS:
            return int(ns[Bucket.CUDA_CPU] + ns[Bucket.HOST_CPU])
        return int(ns[[Bucket.CUDA_CPU, Bucket.GPU_WAIT, *UNSEEN_WAIT]].sum())

    def _work_ns(self, seen: SeenTime) -> int:
        return own_ns(self._on_core(seen.ns), seen.detail_ns)

    # --- every second -----------------------------------------------------------------

    def complete(self, window: Window, totals: Records, read_ns: int) -> None:
        """Put in what was not seen, and say what tracing cost."""
        watched = self._watched(window, totals, read_ns)
        self._measure(window)
        window.operations = self._counts.complete(window.operations, watched)
        self._counts.weigh(window.calls)
        self._threads.complete(window.threads, watched, window.start_ns, self._counts.hidden_ns())
        if self._changed:
            self._counts.forget_pools()
            self._threads.forget_pools()
            self._changed = False
        self._counts.forget(each.pid for each in window.processes if each.end_ns is not None)
        if not self.watch.cycles:  # how calls keep step now is told from this second on
            self._in_step.begin()
        window.actions, self._news = self._news, []
        if watched is not None:
            window.watched_share = watched.share

    def _watched(self, window: Window, totals: Records, read_ns: int) -> Watched | None:
        from_ns, self._read_ns = self._read_ns, read_ns
        if self._on_ns is not None:
            self._see(totals, self._counters.read())
            self._ons_ns += read_ns - max(self._on_ns, from_ns)
        ons_ns, self._ons_ns = self._ons_ns, 0
        seen, self._seen = self._seen, {}
        made, self._made = self._made, {}
        cycled = self._cycled | self.watch.cycled
        if not cycled and not self.watch.thinned:
            return None
        share = min(ons_ns / max(read_ns - from_ns, 1), 1.0)
        bases = self._bases(window, seen, made)
        self._cycled = frozenset()
        steps, self._steps = self._steps, {}
        paces = self._periods.paces(cycled)
        self._in_step.learn(paces)
        return Watched(share, cycled, paces, steps, bases, seen, bool(cycled & WAITS))

    def _bases(
        self, window: Window, seen: Mapping[int, SeenTime], made: Mapping[int, NDArray[np.int64]]
    ) -> dict[int, Base]:
        """Time on a core and calls that are always watched, of each process that feeds a GPU."""
        counters = self._counters.read()
        change = counters.since(self._window_counters)
        total = counters.vectors(calls(change))
        cycled = self._cycled_meters()
        counted = self._by_meter(window.operations, cycled)
        detail_of = counters.by_thread(detail_ns(change, self._cost))
        seen_ns: dict[int, int] = {}
        between_ns: dict[int, int] = {}
        for row in window.threads[window.threads["feeder"]]:
            pid, tid = int(row["pid"]), int(row["tid"])
            mine = seen.get(tid, SeenTime())
            unseen_ns = max(self._on_core(row["ns"].astype(np.int64)) - self._on_core(mine.ns), 0)
            detail = max(detail_of.get(tid, 0) - mine.detail_ns, 0)
            seen_ns[pid] = seen_ns.get(pid, 0) + self._work_ns(mine)
            between_ns[pid] = between_ns.get(pid, 0) + own_ns(unseen_ns, detail)
        found: dict[int, Base] = {}
        for pid, ns in seen_ns.items():
            none = np.zeros(METERS, np.int64)
            inside, all_of_it = made.get(pid, none), total.get(pid, none)
            # the others were made in the time that reading takes, at the edges of on-periods
            known = int(inside[cycled].sum()) / max(int(all_of_it[cycled].sum()), 1)
            part = min(known, 1.0) if all_of_it[cycled].any() else 1.0
            found[pid] = Base(ns, between_ns[pid], counted.get(pid, none), part)
        return found

    def _by_meter(self, rows: Records, cycled: list[int]) -> dict[int, NDArray[np.int64]]:
        """Calls of the window by what their functions' meters are now, by process.

        Not what the meters counted: a function that got its own amid the window was among the others before.
        """
        found: dict[int, NDArray[np.int64]] = {}
        for row in rows[rows["op"] <= len(ROWS)]:
            mine = found.setdefault(int(row["pid"]), np.zeros(METERS, np.int64))
            mine[self._rates.meters.get(int(row["op"]), OTHERS)] += int(row["count"]) + int(row["untimed"])
        for mine in found.values():
            mine[cycled] = 0  # not always watched
        return found

    def _measure(self, window: Window) -> None:
        counters = self._counters.read()
        change = counters.since(self._window_counters)
        self._window_counters = counters
        window.hits = hits(change)
        threads = window.threads
        lived = dict(zip(threads["tid"].tolist(), threads["ns"].sum(axis=1).tolist(), strict=True))
        switched = (threads["voluntary_switches"] + threads["involuntary_switches"]).tolist()
        switches = dict(zip(threads["tid"].tolist(), switched, strict=True))
        length_s = (window.end_ns - window.start_ns) / 1e9
        self._rates.switches = {tid: count / length_s for tid, count in switches.items()} if length_s else {}
        self._rates.at_once = at_once(threads)
        slowed: dict[int, float] = {}
        spent = hit_ns(change, self._cost) + detail_ns(change, self._cost)
        for pid, tid, ns in zip(counters.pids.tolist(), counters.tids.tolist(), spent.tolist(), strict=True):
            wall_ns = lived.get(tid, 0)
            if ns and wall_ns >= LEAST_WALL_NS:
                share = (ns + switches.get(tid, 0) * SWITCH_NS) / wall_ns
                slowed[pid] = slowed.get(pid, 0.0) + share / self._rates.at_once.get(pid, 1.0)
        turning = self._turns * turn_ns(len(self.watch.cycled)) / max(window.end_ns - window.start_ns, 1)
        self._turns = 0
        window.overhead_share = max(slowed.values()) + turning if slowed else 0.0

    def now(self) -> tuple[str, ...]:
        """What is watched less, in words."""
        return tuple(watched_less(self.watch))

    def close(self) -> None:
        self._counters.close()


def at_once(threads: Records) -> dict[int, float]:
    """How many of a process's feeding threads were on a core at a time; those that take turns are one."""
    found: dict[int, float] = {}
    for row in threads[threads["feeder"]]:
        wall_ns = int(row["ns"].sum())
        cpu_ns = int(row["ns"][Bucket.CUDA_CPU] + row["ns"][Bucket.HOST_CPU] + row["ns"][Bucket.GPU_WAIT])
        if wall_ns >= LEAST_WALL_NS:
            found[int(row["pid"])] = found.get(int(row["pid"]), 0.0) + cpu_ns / wall_ns
    return {pid: max(each, 1.0) for pid, each in found.items()}
