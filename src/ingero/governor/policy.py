"""How much is watched, so that tracing stays within its budget: rates in, decisions out.

From what a process calls per second and what a hit of each kind costs here, the cost of
every way to watch is known before it is tried, so nothing is found out by trial. What is given up
comes in this order: stacks and records, the timing of the most frequent functions, and
last that they are watched all the time. A function that is called rarely is never watched less,
whatever its family. Docs: docs/governor.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingero.attach.probes import ROWS
from ingero.model.hit_cost import ALL_DUE, ALL_THE_TIME, ALL_TIMED, RECORDS, TIMING, HitCost
from ingero.model.window import GovernorAction
from ingero.units import format_share

EVERY = (2, 4, 8, 16)
WORTH = 0.9  # of a timed call's cost: counting must be cheaper than that
MATTERS = 0.05  # of what all hits cost: a function with less wins nothing, and tells much
CYCLE_NS = 250_000_000  # from one on-period to the next
SHORTEST_NS, LONGEST_NS = 15_000_000, 200_000_000  # an on-period
LONGEST_PAUSE_NS = 1_200_000_000  # between two, or windows go by without one
# An on-period that has whole steps of the job tells how many calls a step makes; one within a step does not.
STEPS = 2.5
SLOWEST_STEP_NS = 125_000_000
# What taking probes off and putting them on again costs: 1 ms for 73 functions (docs/real-gpu.md).
TURN_NS, TURN_FUNCTION_NS = 125_000, 12_000
RARE = 200.0  # calls a second: a function that is called less often is never watched less
GOOD_SHARE = 0.10  # of the time: functions are spared as long as so much is left for the others
TELLS_MUCH = 2  # copies, allocations, waits: watched less only where they are a good part of all calls
SPARED_COST = 1.1  # times what watching the least costs
KEPT_SHARE = 0.4  # or so much of what there is where none is spared: whole steps are seen with less, too
LEAST_SHARE = 0.02  # of the time: less shows too little to estimate from
# Of the budget: where to, and when to move. A large process pays more than ours does, where the cost of a
# hit is measured, up to three times as much (docs/real-gpu.md).
AIM, HIGH, LOW = 0.3, 0.5, 0.2
COUNTING = 0.475  # of the budget: as long as every call is counted, so much may be spent
# Of the budget, for the stacks of a process's calls and waits: where there is room, and where there is not.
WALKS, FEWER_WALKS = 0.25, 0.075
CREDIT_NS = 1_000_000_000  # what may be spent in so long may be spent at once: a burst is no rate
MOST_CREDIT = 2.0  # times that are remembered
FIRST_NS = 1_500_000_000  # before the first loosening: a job just met is no measure
LOOSEN_NS = 5_000_000_000  # doubled each time it proves to have been too soon
MOST_PATIENCE_NS = 60_000_000_000
SOON_NS = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """What a process does in a second of its time."""

    calls: Mapping[int, float]  # by function, of those called often
    others: float = 0.0  # of all other functions together
    detail_share: float = 0.0  # its time that records and stacks take now
    fixed_share: float = 0.0  # and what cannot be helped


@dataclass(frozen=True, slots=True)
class Watch:
    """How much is watched."""

    less_detail: bool = False
    every: int = 1  # one call of so many is timed, of those thinned
    thinned: frozenset[int] = frozenset()
    cycled: frozenset[int] = frozenset()
    share: float = 1.0  # of the time, of those cycled

    @property
    def cycles(self) -> bool:
        return bool(self.cycled)


ALL = Watch()


@dataclass(frozen=True, slots=True)
class Means:
    """What this kernel offers, and which functions say more by their length than by their number."""

    cost: HitCost
    can_cycle: bool = True
    waits: frozenset[int] = frozenset()  # time inside them is known only where they are timed
    whole: frozenset[int] = frozenset()  # each call counts: collectives are numbered, contexts are set
    telling: Mapping[int, int] = field(default_factory=dict)  # how much single calls tell, by function

    @property
    def can_thin(self) -> bool:
        return self.cost.counted_ns < WORTH * self.cost.ns

    def hit_ns(self, function: int, watch: Watch) -> float:
        """Of a call, on average."""
        ns = self.cost.ns
        if function in watch.thinned:
            ns = (ns + (watch.every - 1) * self.cost.counted_ns) / watch.every
        return ns * watch.share if function in watch.cycled else ns


def period_ns(share: float) -> float:
    """How long an on-period lasts, on average."""
    return min(max(CYCLE_NS * share, SHORTEST_NS), LONGEST_NS)


def whole_steps_ns(share: float, step_ns: float) -> float:
    """How long it must last to have some of the job's steps whole, as far as the pause after it allows."""
    return min(STEPS * step_ns, share / max(1 - share, share) * LONGEST_PAUSE_NS, LONGEST_NS)


def step_ns(rates: NDArray[np.float64], anchors: Collection[int]) -> float:
    """How long a step takes, by calls a second of functions that are always watched; 0: nothing tells.

    `anchors`: those that others are known to keep step with, or that may be what they keep step with.
    """
    lengths = [1e9 / rates[each] for each in anchors if rates[each] * SLOWEST_STEP_NS >= 1e9]
    return max(lengths, default=0.0)


def turning_share(watch: Watch) -> float:
    """Part of the time that taking probes off and on takes."""
    return turn_ns(len(watch.cycled)) * watch.share / period_ns(watch.share) if watch.cycles else 0.0


def turn_ns(functions: int) -> int:
    """What taking probes off and putting them on again costs a process."""
    return TURN_NS + TURN_FUNCTION_NS * functions


def detail_share(load: Load, now: Watch, then: Watch, budget: float) -> float:
    """What records and stacks would take, from what they take now."""
    if then.less_detail == now.less_detail:
        return load.detail_share
    if then.less_detail:
        return load.detail_share * FEWER_WALKS / WALKS
    return min(load.detail_share * WALKS / FEWER_WALKS, max(WALKS * budget, load.detail_share))


def cost_share(load: Load, watch: Watch, means: Means) -> float:
    """Part of the process's time that watching like this takes, records and stacks apart."""
    ns = load.others * means.cost.ns
    ns += sum(calls * means.hit_ns(function, watch) for function, calls in load.calls.items())
    return ns / 1e9 + turning_share(watch) + load.fixed_share


def fitting(load: Load, now: Watch, means: Means, budget: float) -> Watch:
    """The most that can be watched within the budget; the least there is, where nothing is."""
    watch = ALL
    for watch in _ways(load, means):
        taken = cost_share(load, watch, means) + detail_share(load, now, watch, budget)
        if taken <= COUNTING * budget * 1.001:
            return watch
    enough = MATTERS * sum(load.calls.values())
    often = {
        each
        for each, calls in load.calls.items()
        if calls >= (enough if means.telling.get(each, 0) >= TELLS_MUCH else RARE) and each not in means.whole
    }
    return _sparing(load, often, means, budget) if means.can_cycle and often else watch


def _ways(load: Load, means: Means) -> Iterator[Watch]:
    """To count every call, from all to least."""
    yield ALL
    yield Watch(less_detail=True)
    enough = MATTERS * sum(load.calls.values())
    frequent = (each for each, calls in load.calls.items() if calls >= enough and each not in means.whole)
    hottest = sorted(frequent, key=lambda each: -load.calls[each])
    if means.can_thin:
        thinnable = [each for each in hottest if each not in means.waits]
        for every in EVERY:
            for count in range(len(thinnable)):
                yield Watch(True, every, frozenset(thinnable[: count + 1]))


def _sparing(load: Load, often: set[int], means: Means, budget: float) -> Watch:
    """As few functions as possible are watched less: those are spared first whose calls tell most, then the
    rarest. The others must still be seen often enough to tell how many there are."""
    thinned = frozenset(often) - means.waits if means.can_thin else frozenset()
    chosen = _cycled(load, frozenset(often), thinned, means, budget)
    least = min(GOOD_SHARE, KEPT_SHARE * chosen.share)
    # Where even the least is too much, what little the rare ones cost on top wins nothing.
    room = max(AIM * budget, SPARED_COST * _taken(load, chosen, means, budget))
    for each in sorted(often, key=lambda each: (-means.telling.get(each, 0), load.calls[each])):
        without = _cycled(load, chosen.cycled - {each}, thinned, means, budget)
        if without.cycled and without.share >= least and _taken(load, without, means, budget) <= room:
            chosen = without
    return chosen


def _taken(load: Load, watch: Watch, means: Means, budget: float) -> float:
    return cost_share(load, watch, means) + FEWER_WALKS * budget


def _cycled(
    load: Load, functions: frozenset[int], thinned: frozenset[int], means: Means, budget: float
) -> Watch:
    """As often as there is room for. Those spared are counted all the time and timed now and then."""
    never = Watch(True, EVERY[-1] if thinned else 1, thinned, functions, 0.0)
    always = Watch(True, never.every, thinned, functions, 1.0)
    whole = cost_share(load, always, means) - turning_share(always) - cost_share(load, never, means)
    room = AIM * budget - cost_share(load, never, means) - FEWER_WALKS * budget
    turn = turn_ns(len(functions))
    share = (room - turn / CYCLE_NS) / whole if whole else 1.0
    if share * CYCLE_NS < SHORTEST_NS:  # then on-periods do not get shorter, but fewer
        share = room / (whole + turn / SHORTEST_NS)
    return Watch(True, never.every, thinned, functions, min(max(share, LEAST_SHARE), 1.0))


@dataclass(slots=True)
class Controller:
    """Moves when what is spent leaves a band: upwards as soon as a credit is used up, slowly downwards."""

    budget: float
    means: Means
    watch: Watch = field(default_factory=Watch)
    _over_ns: dict[int, float] = field(default_factory=dict)  # by process
    _changed_ns: int = -MOST_PATIENCE_NS
    _loosened_ns: int = -MOST_PATIENCE_NS
    _patience_ns: int = FIRST_NS

    @property
    def credit_ns(self) -> float:
        return HIGH * self.budget * CREDIT_NS

    @property
    def overspends(self) -> bool:
        """Some process, at this moment."""
        return bool(self._over_ns)

    def spend(self, spent_ns: Mapping[int, float], passed_ns: int) -> None:
        """What tracing took of processes in the time that passed."""
        allowed_ns = HIGH * self.budget * passed_ns
        pids = {*spent_ns, *self._over_ns}  # one that rests does not begin anew
        over = {pid: spent_ns.get(pid, 0.0) + self._over_ns.get(pid, 0.0) - allowed_ns for pid in pids}
        self._over_ns = {pid: min(ns, MOST_CREDIT * self.credit_ns) for pid, ns in over.items() if ns > 0}

    def step(self, load: Load, now_ns: int) -> bool:
        """Whether the watch changed. `load`: of the process that watching costs most."""
        share = cost_share(load, self.watch, self.means) + load.detail_share
        if share > HIGH * self.budget and max(self._over_ns.values(), default=0.0) > self.credit_ns:
            self._over_ns.clear()
            if now_ns - self._loosened_ns < SOON_NS:
                self._patience_ns = min(max(2 * self._patience_ns, LOOSEN_NS), MOST_PATIENCE_NS)
            return self._move(load, now_ns)
        helped = share - load.fixed_share  # by watching less
        if (
            helped < LOW * self.budget
            and self.watch != ALL
            and now_ns - self._changed_ns >= self._patience_ns
        ):
            if now_ns - self._loosened_ns > 2 * self._patience_ns:
                self._patience_ns = max(self._patience_ns // 2, LOOSEN_NS)
            self._loosened_ns = now_ns
            return self._move(load, now_ns)
        return False

    def _move(self, load: Load, now_ns: int) -> bool:
        watch = fitting(load, self.watch, self.means, self.budget)
        changed = watch != self.watch
        self._changed_ns = now_ns
        self.watch = watch
        return changed


# What the governor decides, in words.


FEWER = "fewer"


def names_of(functions: Collection[int]) -> str:
    return ", ".join(sorted(ROWS[number - 1].name for number in functions)) or "calls"


def detail(watch: Watch) -> str:
    return FEWER if watch.less_detail else ALL_DUE


def timing(watch: Watch) -> str:
    return f"1 call in {watch.every} timed, all counted" if watch.thinned else ALL_TIMED


def watching(watch: Watch) -> str:
    return f"{format_share(watch.share)} of the time" if watch.cycles else ALL_THE_TIME


def actions_between(
    before: Watch, controller: Controller, load: Load, pid: int, tid: int, now_ns: int
) -> Iterator[GovernorAction]:
    after = controller.watch

    def expected(watch: Watch) -> str:
        share = cost_share(load, watch, controller.means)
        return format_share(share + detail_share(load, before, watch, controller.budget))

    why = (
        f"tracing everything would take {expected(ALL)} of the time of process {pid},"
        f" most of it in thread {tid}; {expected(after)} expected now,"
        f" budget {format_share(controller.budget)}"
    )
    thinned, cycled = names_of(after.thinned or before.thinned), names_of(after.cycled or before.cycled)
    for what, words in ((RECORDS, detail), (TIMING + thinned, timing), (cycled, watching)):
        if words(before) != words(after):
            yield GovernorAction(now_ns, what, words(before), words(after), why, after.share)


def watched_less(watch: Watch) -> Iterator[str]:
    """What is not watched in full now."""
    if watch.less_detail:
        yield f"{RECORDS}: {detail(watch)}"
    if watch.thinned:
        yield f"{names_of(watch.thinned)}: {timing(watch)}"
    if watch.cycles:
        yield f"{names_of(watch.cycled)} watched {watching(watch)}"
