"""Keeps what tracing costs within its budget: measures, decides (control.py), and acts.

Acting is telling the kernel side which operations to time and which to pass by, and
taking groups of probes off and on again at times nobody can foresee: a period would meet the
job's own. While a group is off its calls are not seen at all; what its windows then lack is
estimated from the rest (capture/estimates.py) and marked.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ingero.agent.control import ALL, TURN_NS, Controller, Watch, look_ns, walks_per_second
from ingero.agent.governor_words import actions_between, watched_less
from ingero.agent.looks import (
    SWITCH_NS,
    Looks,
    always_watched,
    calls_by_group,
    detail_ns,
    hits,
    spent_ns,
)
from ingero.attach import probes
from ingero.attach.cost import HitCost
from ingero.attach.kernel import KernelSide
from ingero.attach.session import File, Session
from ingero.capture.costs import GROUPS, Costs, Reading
from ingero.capture.estimates import Estimator
from ingero.capture.thread_estimates import ThreadEstimator
from ingero.model.governor import Base, Seen, Watched, own_ns
from ingero.model.layout import Bucket, Group, HeaderFlag
from ingero.model.window import GovernorAction, Records, Window

LOOK_NS = 50_000_000
LONGEST_PAUSE_NS = 1_200_000_000  # or windows go by without a look
RETURNS_S = 0.001  # calls in flight come back meanwhile: their returns are still seen
# A record without its stack costs little, and one for each iteration of a loop tells a long one.
STEPS_PER_SECOND = 250
ANOTHER_JOB = 5  # times the calls; what a short look shows may be off by two
FEW_LOOKS = 4
LEAST_WALL_NS = 200_000_000  # of a thread, to say what tracing cost it


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
        self._settings = kernel.settings
        self._chance = chance or random.Random()
        self._costs = Costs(kernel.maps["thread_costs"])
        self._looks = Looks(self._costs, cost, now_ns)
        self._controller = Controller(budget, cost, cost.shape != "perf") if budget is not None else None
        self._number = 0  # settings.watch
        self._next_look_ns = now_ns
        self._until_ns = 0  # of the open or closed time, while there are such
        self._look_from_ns = now_ns
        self._look_cpu_ns: dict[int, int] = {}  # by process, since then
        self._open_ns: int | None = now_ns  # since when everything is watched
        self._opens_ns = 0  # of the window so far
        self._turns = 0  # probes put on again, in it
        self._governed: set[Group] = set()  # closed at some time of the window
        self._mark = kernel.read_threads()
        self._mark_opened_ns: int | None = None  # where the mark was read before everything was watched
        self._mark_costs = self._costs.read()
        self._window_costs = self._mark_costs
        self._seen: dict[int, Seen] = {}
        self._always: dict[int, int] = {}  # calls always watched, by process, while all were
        self._inside: dict[int, NDArray[np.int64]] = {}  # calls by group meanwhile, by process
        self._read_ns = now_ns
        self._operations, self._threads = Estimator(), ThreadEstimator()
        self._calls = 0.0  # a second, of the worst process, at the last change
        self._changed = False  # what it does, in this window
        self._news: list[GovernorAction] = []
        self._ops: dict[Group, list[int]] = {group: _numbers(group) for group in Group}

    @property
    def watch(self) -> Watch:
        return self._controller.watch if self._controller else ALL

    # --- every ten milliseconds --------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        if self._controller is None:
            return
        if self.watch.cycles and now_ns >= self._until_ns:
            if self._open_ns is None:
                self._open()
            else:
                self._close()
            return
        if self._open_ns is not None and now_ns >= self._next_look_ns:
            self._next_look_ns = now_ns + LOOK_NS
            self._looks.take(now_ns, self.watch.detail)
            self._decide(now_ns)

    def _decide(self, now_ns: int) -> None:
        assert self._controller is not None
        worst = self._looks.worst()
        if worst is None:
            return
        pid, tid, load = worst
        before = self._controller.watch
        if self._controller.step(load, now_ns):
            self._notice(sum(load.calls))
            self._news += actions_between(before, self._controller, load, pid, tid, now_ns)
            self._apply(before, self._controller.watch)

    def _notice(self, calls: float) -> None:
        """A job that calls far more often, or less, does something else: what was seen says nothing of it."""
        before, self._calls = self._calls, calls
        begun = len(self._looks) < FEW_LOOKS  # with those few it only begins to show what it does
        if before and not begun and not 1 / ANOTHER_JOB < calls / before < ANOTHER_JOB:
            self._looks.forget_looks()
            self._changed = True

    def _apply(self, before: Watch, after: Watch) -> None:
        """Begins with everything open, unless only the time it is open changes."""
        if after.cycles and (before.groups, before.every) == (after.groups, after.every):
            self._tell()
            return
        if self._open_ns is None:
            self._open()
        self._kernel.set_watched(before.groups - after.groups, 0, closed=False)
        self._kernel.set_watched(after.groups, after.every if after.every > 1 else 0, closed=False)
        self._tell()
        self._looks.forget_looks()
        self._see(self._kernel.read_threads(), self._costs.read())  # or the first look had time of before it
        self._mark_costs = self._costs.read()
        now_ns = self._mark_opened_ns = time.monotonic_ns()
        self._looks.skip(now_ns)
        self._begin_look(now_ns)

    def _tell(self) -> None:
        """Even: nothing is closed."""
        if self._number == 0 or self._number % 2 != (self._open_ns is None):
            self._number += 2 if self._number == 0 else 1
        detail = self.watch.detail
        rare = self._settings.rare_per_second
        self._kernel.watch(
            self._number,
            min(STEPS_PER_SECOND, rare) if detail else rare,
            min(walks_per_second(detail), rare) if detail else rare,
            self._settings.sample_every_ns << detail,
            detail > 0,
        )

    def _begin_look(self, now_ns: int) -> None:
        self._look_from_ns, self._look_cpu_ns = now_ns, {}
        self._until_ns = now_ns + int(look_ns(self.watch.share) * self._chance.uniform(0.6, 1.4))

    def _close(self) -> None:
        groups = self.watch.groups
        now_ns = time.monotonic_ns()
        assert self._open_ns is not None
        lasted_ns = now_ns - self._look_from_ns  # longer than meant to where we were held up: so is the pause
        self._opens_ns += now_ns - max(self._open_ns, self._read_ns)
        self._open_ns = None
        costs = self._costs.read()
        self._kernel.set_watched(groups, self._every(), closed=True)
        self._tell()
        self._see(self._kernel.read_threads(), costs, now_ns)
        self._looks.take(now_ns, self.watch.detail)
        self._looks.close(groups, self._look_cpu_ns)
        self._changed |= self._looks.forget_what_was()
        time.sleep(RETURNS_S)
        self._session.take_off(groups)
        self._governed |= groups
        off = min(lasted_ns * (1 - self.watch.share) / self.watch.share, LONGEST_PAUSE_NS)
        self._until_ns = now_ns + int(off * self._chance.uniform(0.6, 1.4))
        self._decide(time.monotonic_ns())

    def _open(self) -> None:
        groups = self.watch.groups
        self._session.put_on(self._paths())
        self._turns += 1
        self._mark = self._kernel.read_threads()
        self._kernel.set_watched(groups, self._every(), closed=False)
        self._open_ns = time.monotonic_ns()
        self._tell()
        self._mark_costs = self._costs.read()
        now_ns = self._open_ns = self._mark_opened_ns = time.monotonic_ns()
        self._looks.skip(now_ns)
        self._next_look_ns = now_ns + LOOK_NS
        self._begin_look(now_ns)

    def stood_still(self, from_ns: int) -> None:
        """The probes were off since then, by no doing of ours: that time does not count."""
        now_ns = time.monotonic_ns()
        self._looks.skip(now_ns)
        self._until_ns += now_ns - from_ns
        self._look_from_ns += now_ns - from_ns

    def _every(self) -> int:
        return self.watch.every if self.watch.every > 1 else 0

    def _see(self, totals: Records, costs: Reading, closed_ns: int | None = None) -> None:
        """Add up what threads did since the last time, all of it watched.

        Reading all threads takes a while, before a look and after it: what they did then is
        left out, or every look would seem to have fewer calls in its time than it had.
        """
        change = costs.since(self._mark_costs)
        counted = change[:, GROUPS : 2 * GROUPS].sum(axis=1)
        for pid, calls in always_watched(costs, change).items():
            self._always[pid] = self._always.get(pid, 0) + calls
        for pid, by_group in calls_by_group(costs, change).items():
            self._inside[pid] = self._inside.get(pid, 0) + by_group
        counted_of = costs.by_thread(counted)
        detail_of = costs.by_thread(detail_ns(change, self._cost))
        before = {int(row["h"]["tid"]): row for row in self._mark}
        for row in totals:
            tid, pid = int(row["h"]["tid"]), int(row["h"]["pid"])
            if tid not in counted_of or not row["h"]["flags"] & HeaderFlag.H_FEEDER:
                continue
            ns, gap, tells = row["acc"].astype(np.int64), row["gap"].astype(np.int64), bool(row["known"])
            known = before.get(tid)
            if known is not None and known["h"]["start_ns"] == row["h"]["start_ns"]:
                ns, gap = ns - known["acc"].astype(np.int64), gap - known["gap"].astype(np.int64)
                inside = self._inside_look(int(known["now_ns"]), int(row["now_ns"]), closed_ns)
                ns, gap = (ns * inside).astype(np.int64), (gap * inside).astype(np.int64)
                tells = row["known"] != known["known"]
            ns = np.maximum(ns, 0)
            gap = np.clip(gap, 0, ns)  # a wait before the look may become known in it
            seen = Seen(ns, gap * tells, counted_of[tid], ns * tells, detail_of[tid])
            self._seen.setdefault(tid, Seen()).add(seen)
            self._look_cpu_ns[pid] = self._look_cpu_ns.get(pid, 0) + seen.work_ns
        self._mark, self._mark_costs, self._mark_opened_ns = totals, costs, None

    def _inside_look(self, from_ns: int, to_ns: int, closed_ns: int | None) -> float:
        """Part of the time between two readings of a thread in which everything was watched."""
        begin = max(from_ns, self._mark_opened_ns or from_ns)
        end = min(to_ns, closed_ns or to_ns)
        return max(end - begin, 0) / max(to_ns - from_ns, 1)

    # --- every second -----------------------------------------------------------------

    def complete(self, window: Window, totals: Records, read_ns: int) -> None:
        """Put in what was not seen, and say what tracing cost."""
        watched = self._watched(window, totals, read_ns)
        self._measure(window)
        window.operations = self._operations.complete(window.operations, watched)
        self._operations.weigh(window.calls)
        self._threads.complete(window.threads, watched, window.start_ns, self._operations.hidden_ns())
        if self._changed:
            self._operations.forget_pools()
            self._threads.forget_pools()
            self._changed = False
        self._operations.forget(each.pid for each in window.processes if each.end_ns is not None)
        window.actions, self._news = self._news, []
        if watched is not None:
            window.watched_share = watched.share

    def _watched(self, window: Window, totals: Records, read_ns: int) -> Watched | None:
        from_ns, self._read_ns = self._read_ns, read_ns
        if self._open_ns is not None:
            self._see(totals, self._costs.read())
            self._opens_ns += read_ns - max(self._open_ns, from_ns)
        opens_ns, self._opens_ns = self._opens_ns, 0
        seen, self._seen = self._seen, {}
        always, self._always = self._always, {}
        inside, self._inside = self._inside, {}
        closed, self._governed = self._governed | self._cycled(), set()
        if not closed and not self.watch.groups:
            return None
        numbers = frozenset(number for group in closed for number in self._ops[group])
        share = min(opens_ns / max(read_ns - from_ns, 1), 1.0)
        bases = self._bases(window, seen, always, inside, sorted(closed))
        return Watched(share, numbers, self._looks.processes(), bases, seen)

    def _cycled(self) -> set[Group]:
        return set(self.watch.groups) if self.watch.cycles else set()

    def _bases(
        self,
        window: Window,
        seen: Mapping[int, Seen],
        always: Mapping[int, int],
        inside: Mapping[int, NDArray[np.int64]],
        closed: Sequence[Group],
    ) -> dict[int, Base]:
        """Time on a core and calls that are always watched, of each process that feeds a GPU."""
        costs = self._costs.read()
        change = costs.since(self._window_costs)
        made, counted = always_watched(costs, change), calls_by_group(costs, change)
        detail_of = costs.by_thread(detail_ns(change, self._cost))
        seen_ns: dict[int, int] = {}
        between_ns: dict[int, int] = {}
        for row in window.threads[window.threads["feeder"]]:
            pid, tid = int(row["pid"]), int(row["tid"])
            mine = seen.get(tid, Seen())
            cpu_ns = int(row["ns"][Bucket.CUDA_CPU] + row["ns"][Bucket.HOST_CPU])
            unseen_ns = max(cpu_ns - mine.cpu_ns, 0)
            detail = max(detail_of.get(tid, 0) - mine.detail_ns, 0)
            seen_ns[pid] = seen_ns.get(pid, 0) + mine.work_ns
            between_ns[pid] = between_ns.get(pid, 0) + own_ns(unseen_ns, detail)
        return {
            pid: Base(
                seen_ns[pid],
                between_ns[pid],
                always.get(pid, 0),
                max(made.get(pid, 0) - always.get(pid, 0), 0),
                _part(inside.get(pid), counted.get(pid), closed),
            )
            for pid in seen_ns
        }

    def _measure(self, window: Window) -> None:
        costs = self._costs.read()
        change = costs.since(self._window_costs)
        self._window_costs = costs
        window.hits = hits(change)
        switches = dict(
            zip(
                window.threads["tid"].tolist(),
                (window.threads["voluntary_switches"] + window.threads["involuntary_switches"]).tolist(),
                strict=True,
            )
        )
        lived_ns = window.threads["ns"].sum(axis=1).tolist()
        lived = dict(zip(window.threads["tid"].tolist(), lived_ns, strict=True))
        length_s = (window.end_ns - window.start_ns) / 1e9
        self._looks.switches = {tid: count / length_s for tid, count in switches.items()} if length_s else {}
        self._looks.at_once = at_once(window.threads)
        slowed: dict[int, float] = {}
        for pid, tid, ns in zip(
            costs.pids.tolist(), costs.tids.tolist(), spent_ns(change, self._cost).tolist(), strict=True
        ):
            wall_ns = lived.get(tid, 0)
            if ns and wall_ns >= LEAST_WALL_NS:
                share = (ns + switches.get(tid, 0) * SWITCH_NS) / wall_ns
                slowed[pid] = slowed.get(pid, 0.0) + share / self._looks.at_once.get(pid, 1.0)
        turning = self._turns * TURN_NS / max(window.end_ns - window.start_ns, 1)
        self._turns = 0
        window.overhead_share = max(slowed.values()) + turning if slowed else 0.0

    def now(self) -> tuple[str, ...]:
        """What is watched less, in words."""
        return tuple(watched_less(self.watch))

    def close(self) -> None:
        self._costs.close()


def _numbers(group: Group) -> list[int]:
    """Operations of a group."""
    return [number for number, row in enumerate(probes.ROWS, start=1) if probes.group_of(row) == group]


def _part(
    inside: NDArray[np.int64] | None, counted: NDArray[np.int64] | None, groups: Sequence[Group]
) -> float:
    """Of the calls counted, those made in the time known of, which lacks the edges of looks."""
    if inside is None or counted is None or not groups:
        return 1.0
    chosen = [int(group) for group in groups]
    return min(float(inside[chosen].sum()) / max(float(counted[chosen].sum()), 1.0), 1.0)


def at_once(threads: Records) -> dict[int, float]:
    """How many of a process's feeding threads were on a core at a time; those that take turns are one."""
    found: dict[int, float] = {}
    for row in threads[threads["feeder"]]:
        wall_ns = int(row["ns"].sum())
        cpu_ns = int(row["ns"][Bucket.CUDA_CPU] + row["ns"][Bucket.HOST_CPU] + row["ns"][Bucket.GPU_WAIT])
        if wall_ns >= LEAST_WALL_NS:
            found[int(row["pid"])] = found.get(int(row["pid"]), 0.0) + cpu_ns / wall_ns
    return {pid: max(each, 1.0) for pid, each in found.items()}
