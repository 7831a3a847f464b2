"""How much is watched, so that tracing stays within its budget: the control law, without clock or kernel.

From what a thread calls per second and what a hit of each kind costs here, the cost of
every way to watch is known before it is tried. So nothing is found out by trial, and nothing swings.
First fewer records and stacks, then one call of N timed (the others counted), then groups
of calls watched only a part of the time. Docs: docs/governor.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ingero.attach.cost import HitCost
from ingero.model.layout import Group

GROUPS = int(Group.GROUPS)
# May be taken off for a moment; waits for the GPU, allocations, graphs and collectives never are.
CLOSABLE = (Group.GROUP_LAUNCH, Group.GROUP_COPY, Group.GROUP_EVENT, Group.GROUP_POLL)
DETAILS = 4  # steps of fewer records and stacks, each a quarter of the one before
EVERY = (2, 4, 8, 16)
WORTH = 0.9  # of a timed call's cost: counting must be cheaper than that
CYCLE_NS = 400_000_000  # from look to look: two or three in every window
SHORTEST_NS, LONGEST_NS = 20_000_000, 200_000_000  # a look
TURN_NS = 1_000_000  # what taking probes off and putting them on again costs a job: docs/real-gpu.md
LEAST_SHARE = 0.02  # of the time: less shows too little to estimate from
MATTERS = 0.05  # of the calls that may be left out: a group with fewer wins nothing, and tells much
# Of the budget: where to, and when to move. A large process pays more than ours does, where the cost of a
# hit is measured, up to three times as much (docs/real-gpu.md).
AIM, HIGH, LOW = 0.35, 0.5, 0.25
TIGHTEN_NS = 300_000_000
FIRST_NS = 1_500_000_000  # the first time: a job just met is no measure, its stacks are all new
LOOSEN_NS = 5_000_000_000  # doubled each time it proves to have been too soon
MOST_PATIENCE_NS = 60_000_000_000
SOON_NS = 10_000_000_000


MOST_WALKS = 512  # stacks of an operation in a second, of which each step of less detail leaves a quarter


def walks_per_second(detail: int) -> int:
    """At a level of less detail, samples apart."""
    return MOST_WALKS >> 2 * detail


@dataclass(frozen=True, slots=True)
class Load:
    """What a thread does in a second of its time."""

    calls: tuple[float, ...]  # by group
    detail_share: float = 0.0  # its time that records and stacks take
    fixed_share: float = 0.0  # and what cannot be helped
    level: int = 0  # of detail, at which that was seen
    whole_share: float = 0.0  # the same with all detail, when that was last seen

    def detail_at(self, detail: int) -> float:
        """Each step is to leave a quarter; what came of the steps taken is known."""
        if detail >= self.level:
            return self.detail_share / float(4 ** (detail - self.level))
        return max(self.whole_share / float(4**detail), self.detail_share)


@dataclass(frozen=True, slots=True)
class Watch:
    """How much is watched."""

    detail: int = 0
    every: int = 1  # one call of so many is timed, of the groups
    groups: frozenset[Group] = frozenset()
    share: float = 1.0  # of the time, of the groups

    @property
    def cycles(self) -> bool:
        return bool(self.groups) and self.share < 1.0


ALL = Watch()


def look_ns(share: float) -> float:
    """How long a look lasts, on average."""
    return min(max(CYCLE_NS * share, SHORTEST_NS), LONGEST_NS)


def cost_share(load: Load, watch: Watch, cost: HitCost) -> float:
    """Part of the thread's time that watching like this takes."""
    turning = TURN_NS * watch.share / look_ns(watch.share) if watch.cycles else 0.0
    return _hits_share(load, watch, cost) + turning + load.detail_at(watch.detail) + load.fixed_share


def _hits_share(load: Load, watch: Watch, cost: HitCost) -> float:
    thinned = (cost.ns + (watch.every - 1) * cost.counted_ns) / watch.every
    ns = 0.0
    for group, calls in enumerate(load.calls):
        ns += calls * (watch.share * thinned if group in watch.groups else cost.ns)
    return ns / 1e9


def fitting(load: Load, cost: HitCost, aim: float, can_cycle: bool) -> Watch:
    """The most that can be watched within `aim`; the least there is, where nothing is."""
    watch = ALL
    for watch in _ways(load, cost, aim, can_cycle):
        if cost_share(load, watch, cost) <= aim * 1.001:
            break
    return watch


def _ways(load: Load, cost: HitCost, aim: float, can_cycle: bool) -> Iterator[Watch]:
    """From all to least."""
    detail = 0
    for detail in range(DETAILS):
        yield Watch(detail)
        if load.detail_at(detail) <= aim / 4:  # with less of it nothing is won
            break
    enough = MATTERS * sum(load.calls[group] for group in CLOSABLE)
    matter = (group for group in CLOSABLE if load.calls[group] and load.calls[group] >= enough)
    hottest = sorted(matter, key=lambda group: -load.calls[group])
    sets = [frozenset(hottest[: count + 1]) for count in range(len(hottest))]
    thins = cost.counted_ns < WORTH * cost.ns
    if thins:
        yield from (Watch(detail, every, groups) for every in EVERY for groups in sets)
    if can_cycle:
        every = EVERY[1] if thins else 1
        used = frozenset(group for group in CLOSABLE if load.calls[group])
        if cost_share(load, Watch(detail, every, used, LEAST_SHARE), cost) <= aim:
            sets.append(used)  # where nothing less is enough, and this is
        for groups in sets:
            never = Watch(detail, every, groups, 0.0)
            whole = _hits_share(load, Watch(detail, every, groups), cost) - _hits_share(load, never, cost)
            share = _share_within(aim - cost_share(load, never, cost), whole)
            yield Watch(detail, every, groups, min(max(share, LEAST_SHARE), 1.0))


def _share_within(room: float, whole: float) -> float:
    """Part of the time in which something that takes `whole` of it fits, turning on and off included."""
    share = (room - TURN_NS / CYCLE_NS) / whole
    if share * CYCLE_NS < SHORTEST_NS:  # then looks do not get shorter, but fewer
        share = room / (whole + TURN_NS / SHORTEST_NS)
    return share


@dataclass(slots=True)
class Controller:
    """Moves when the cost leaves a band, at once upwards, slowly downwards."""

    budget: float
    cost: HitCost
    can_cycle: bool
    watch: Watch = field(default_factory=Watch)
    _changed_ns: int = -MOST_PATIENCE_NS
    _loosened_ns: int = -MOST_PATIENCE_NS
    _patience_ns: int = FIRST_NS

    def step(self, load: Load, now_ns: int) -> bool:
        """Whether the watch changed."""
        share = cost_share(load, self.watch, self.cost)
        since = now_ns - self._changed_ns
        if share > HIGH * self.budget and since >= TIGHTEN_NS:
            if now_ns - self._loosened_ns < SOON_NS:
                self._patience_ns = min(max(2 * self._patience_ns, LOOSEN_NS), MOST_PATIENCE_NS)
            return self._move(fitting(load, self.cost, AIM * self.budget, self.can_cycle), now_ns)
        if share < LOW * self.budget and self.watch != ALL and since >= self._patience_ns:
            if now_ns - self._loosened_ns > 2 * self._patience_ns:
                self._patience_ns = max(self._patience_ns // 2, LOOSEN_NS)
            self._loosened_ns = now_ns
            return self._move(fitting(load, self.cost, AIM * self.budget, self.can_cycle), now_ns)
        return False

    def _move(self, watch: Watch, now_ns: int) -> bool:
        changed = watch != self.watch
        if changed:
            self.watch, self._changed_ns = watch, now_ns
        return changed
