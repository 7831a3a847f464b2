"""Steps of a job: its loop, found from its calls; those that stand out; and those it says itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingero.correlate.tables import Tables
from ingero.model.facts import Facts, Marks

# The job's loop, found from its calls: which call marks an iteration, how long one takes.
#
# Every iteration makes the same calls, so all counts of a job are multiples of its
# number of iterations: the least frequent call that still comes steadily marks them.
# A call that was watched a part of the time marks none while there is another: its count
# is an estimate, and what changes when it is watched less is not the job. Unless it is surely
# far rarer than every call that is always watched: then, and where the estimate is rough,
# iterations are taken to be as many in one slice as in the next.

# Kinds of call that loops make; loading, allocations and events come when they come.
KINDS = ("sync", "copy", "collective", "launch", "graph")
STEADY = 0.6  # part of the slices in which it must come
LEAST = 3  # times, to call it a loop
WORK_PER_WAIT = 20  # launches
RARER = 5  # times rarer than what is always watched, to mark iterations by an estimate
NOISY = 0.2  # of an estimate, that it may be off by: what changes from slice to slice is not the job then
RECORDED = 0.9  # of the calls that mark iterations: with fewer records one iteration looks like several


@dataclass(frozen=True, slots=True)
class Loop:
    """What marks an iteration, and how many there were in each slice."""

    op: int
    name: str
    counts: dict[int, int]
    complete: bool = True  # every call has a record: only then do records tell one iteration from the next

    def step_ns(self, number: int, wall_ns: int) -> float | None:
        count = self.counts.get(number, 0)
        return wall_ns / count if count else None


def find_loop(facts: Facts, tables: Tables, pid: int, slices: Mapping[int, int]) -> Loop | None:
    """None where nothing repeats; `slices`: how long each is."""
    counts: dict[int, dict[int, int]] = {}
    estimated: dict[int, int] = {}  # and how far their counts may be off
    for number in slices:
        rows = tables.operations.get((number, pid))
        for row in rows if rows is not None else ():
            op = int(row["op"])
            if tables.op_kind(op) in KINDS:
                per_slice = counts.setdefault(op, {})
                per_slice[number] = per_slice.get(number, 0) + int(row["count"])
                if row["estimated"]:
                    estimated[op] = estimated.get(op, 0) + int(row["error"])
    active = len({number for per_slice in counts.values() for number in per_slice})
    steady = {
        op: per_slice
        for op, per_slice in counts.items()
        if sum(per_slice.values()) >= LEAST and len(per_slice) >= max(2, STEADY * active)
    }
    if not steady:
        return None
    totals = {op: sum(per_slice.values()) for op, per_slice in steady.items()}
    launches = sum(count for each, count in totals.items() if tables.op_kind(each) == "launch")
    marking = {op: count for op, count in totals.items() if op not in estimated} or totals
    op = min(marking, key=lambda each: (marking[each], KINDS.index(tables.op_kind(each))))
    # A wait with that much work before it ends an iteration, whatever comes more rarely.
    worth = [
        each
        for each, count in marking.items()
        if tables.op_kind(each) == "sync" and launches >= WORK_PER_WAIT * count
    ]
    op = max([op, *worth], key=lambda each: (marking[each], -KINDS.index(tables.op_kind(each))))
    rarer = {
        each: totals[each]
        for each, error in estimated.items()
        if each in totals and RARER * (totals[each] + error) < marking[op]
    }
    if rarer:
        op = min(rarer, key=lambda each: rarer[each])
    if rarer or estimated.get(op, 0) > NOISY * totals[op]:
        return Loop(op, facts.ops[op].name, _evenly(totals[op], slices), complete=False)
    return Loop(op, facts.ops[op].name, steady[op], complete=_all_recorded(tables, pid, slices, op))


def _evenly(total: int, slices: Mapping[int, int]) -> dict[int, int]:
    whole = max(sum(slices.values()), 1)
    return {number: max(1, round(total * ns / whole)) for number, ns in slices.items()}


def _all_recorded(tables: Tables, pid: int, slices: Iterable[int], op: int) -> bool:
    """Also of a call that is rare: in a hurry not all are."""
    rows = [row for number in slices for row in tables.operations.get((number, pid), ()) if row["op"] == op]
    count, recorded = (sum(int(row[name]) for row in rows) for name in ("count", "recorded"))
    estimated = any(row["estimated"] for row in rows)
    return not estimated and (not recorded or recorded >= RECORDED * count)


def durations(
    marks: np.ndarray[tuple[int, int], np.dtype[np.int64]],
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """(n, 2): start and length of each iteration, from the calls that mark them."""
    if len(marks) < 2:
        return np.zeros((0, 2), np.int64)
    ends = marks[:, 0] + marks[:, 1]
    return np.stack([ends[:-1], np.diff(ends)], axis=1)


# Iterations that stand out at regular distances in time.


LEAST_SPIKES = 3  # two equal distances; fewer prove nothing
LONGER = 2.0  # times the usual iteration
LEAST_NS = 20_000_000  # shorter ones are the scheduler's ticks and other noise
RARE = 0.08  # of the iterations among them at most: every tenth is the program's own way (accumulation, logs)
REGULAR = 0.15  # spread of the distances, of their mean
EXACT = 0.05  # the same where three spikes are all there is
ALIKE = 1 / 3  # of the longest spike's excess
FED = 0.5  # of the spikes
LEAST_STEPS = 20  # to know what is usual
WAITED = 0.1  # of a spike: a wait for the GPU at its end that is longer, and than usual, shows work
QUEUED = 2  # iterations that may be queued when it begins


def no_spikes() -> NDArray[np.int64]:
    return np.zeros((0, 2), np.int64)


def spikes_in(marks: Marks, from_ns: int, to_ns: int, work: Callable[[], Marks]) -> NDArray[np.int64]:
    """(n, 2): start and excess of regular spikes between two instants; empty where there are none.

    An iteration still under way at the end is one as far as it has come.

    `work` reads the recorded launches, one in twenty milliseconds at least: a long iteration
    amid which the GPU was given work is an evaluation, not a stall.
    """
    steps = durations(marks)
    steps = steps[steps[:, 0] >= from_ns]
    if len(steps) < LEAST_STEPS:
        return no_spikes()
    usual = int(np.median(steps[:, 1]))
    long = steps[(steps[:, 1] > LONGER * usual) & (steps[:, 1] - usual > LEAST_NS)]
    last_ns = int(steps[-1].sum())
    still = np.array([(last_ns, to_ns - last_ns)], np.int64)
    goes_on = still[0, 1] > LONGER * usual and still[0, 1] - usual > LEAST_NS
    found = [np.concatenate([long, still]), long] if goes_on else [long]
    found += [_alike(spikes, usual) for spikes in found]
    for spikes in found:
        if _is_regular(spikes, _among(spikes, steps[:, 0])) and _fed(spikes, work()[:, 0]) <= FED * len(
            spikes
        ):
            return np.stack([spikes[:, 0], spikes[:, 1] - usual], axis=1)
    return no_spikes()


def waits_in(waits: Marks, usual: float, from_ns: int, work: Callable[[], Marks]) -> NDArray[np.int64]:
    """(n, 2): regular long waits of the thread that drives the GPU, where no call marks its iterations.

    While it waits it gives the GPU nothing, and what was queued is soon done: the time is lost. `usual`:
    length of an iteration, at most.
    """
    long = waits[(waits[:, 0] >= from_ns) & (waits[:, 1] > LONGER * usual) & (waits[:, 1] >= LEAST_NS)]
    for spikes in (long, _alike(long, 0)):
        if _is_regular(spikes, _reach_ns(spikes) / usual) and _fed(spikes, work()[:, 0]) <= FED * len(spikes):
            return np.stack([spikes[:, 0], spikes[:, 1]], axis=1)
    return no_spikes()


def surely_idle_ns(spikes: NDArray[np.int64], usual: float) -> int:
    """Of such waits: the time after what may have been queued is done."""
    return int(np.maximum(spikes[:, 1] - QUEUED * usual, 0).sum())


def idle_ns(spikes: NDArray[np.int64], marks: Marks, launches: NDArray[np.int64]) -> int:
    """How long the GPU surely had nothing to do in spikes that compute, where every launch was seen.

    Nothing is given to it amid the spike, and it is not waited for at the end: what was queued is long done.
    One still under way counts as far as it has come.
    """
    if not len(spikes):
        return 0
    steps = durations(marks)
    usual, usually_waits = int(np.median(steps[:, 1])), float(np.median(marks[:, 1]))
    known = dict(
        zip(steps[:, 0].tolist(), zip(steps[:, 1].tolist(), marks[1:, 1].tolist(), strict=True), strict=True)
    )
    total = 0
    for start, excess in spikes.tolist():
        length, waited = known.get(start, (excess + usual, 0))
        one = np.array([(start, length)], np.int64)
        if waited <= max(2 * usually_waits, WAITED * length) and not _fed(one, launches):
            total += max(length - waited - QUEUED * usual, 0)
    return total


def waited_ns(spikes: NDArray[np.int64], marks: Marks, launches: NDArray[np.int64]) -> int:
    """How much of the spikes is the wait for the GPU at their end, beyond the usual one.

    Only where nothing is given to the GPU amid the spike: an evaluation is the job's own work.
    """
    steps = durations(marks)
    usually = float(np.median(marks[:, 1]))
    known = dict(zip(steps[:, 0].tolist(), marks[1:, 1].tolist(), strict=True))
    total = 0.0
    for start, excess in spikes.tolist():
        waited = known.get(start, 0) - usually
        if waited > 0 and not _fed(np.array([(start, excess)], np.int64), launches):
            total += min(waited, excess)
    return int(total)


def _alike(spikes: NDArray[np.int64], usual: int) -> NDArray[np.int64]:
    """Without those that are far shorter than the longest: a hiccup among them is none of them."""
    excess = spikes[:, 1] - usual
    alike: NDArray[np.int64] = spikes[excess >= ALIKE * excess.max(initial=0)]
    return alike


def _reach_ns(spikes: NDArray[np.int64]) -> int:
    """From the first to the last."""
    return int(spikes[-1, 0] - spikes[0, 0]) if len(spikes) else 0


def _among(spikes: NDArray[np.int64], starts: NDArray[np.int64]) -> int:
    """Iterations from the first to the last: where all of them are long, the job has become slower."""
    first, last = np.searchsorted(starts, spikes[[0, -1], 0]) if len(spikes) else (0, 0)
    return int(last - first)


def _is_regular(spikes: NDArray[np.int64], among: float) -> bool:
    """`among`: iterations from the first to the last."""
    if len(spikes) < LEAST_SPIKES or len(spikes) - 1 > RARE * among:
        return False
    apart = np.diff(spikes[:, 0])
    return bool(apart.std() <= (REGULAR if len(spikes) > LEAST_SPIKES else EXACT) * apart.mean())


def _fed(spikes: NDArray[np.int64], launches: NDArray[np.int64]) -> int:
    """Spikes with a launch in their middle third."""
    third = spikes[:, 1] // 3
    first = np.searchsorted(launches, spikes[:, 0] + third)
    last = np.searchsorted(launches, spikes[:, 0] + 2 * third)
    return int((last > first).sum())


# Steps that a job says itself, by labels (`step=120`): how many fell into each second.
#
# A job that says every tenth step, or whose messages were lost, has made the steps in
# between all the same: the numbers tell, and between two of them steps are taken to be
# alike. Before the first label and after the last one nothing is known.


OFTEN = 5.0  # steps a second: of fewer, calls say more about single seconds
LEAST_SECONDS = 3  # from the first label to the last
FAR = 1000  # times the usual distance of two labels: not steps, but another count
PART = 0.5  # of the seconds seen: with fewer, labels are about something else
Series = NDArray[np.float64]


def said_steps(said: Marks, starts: NDArray[np.int64], lengths: Series) -> tuple[NDArray[np.bool_], Series]:
    """Which seconds are known, and the steps in each; none where the labels do not tell.

    `said`: instants and numbers, oldest first.
    """
    nothing = np.zeros(len(starts), bool), np.zeros(0)
    if len(said) < 2 or not len(starts):
        return nothing
    made = np.concatenate([[0.0], np.cumsum(_steps(said[:, 1]))])
    inside = (starts >= said[0, 0]) & (starts + lengths <= said[-1, 0])
    if inside.sum() < max(LEAST_SECONDS, PART * len(starts)):
        return nothing
    ends = (starts + lengths)[inside]
    counts = np.interp(ends, said[:, 0], made) - np.interp(starts[inside], said[:, 0], made)
    wall_s = float(lengths[inside].sum()) / 1e9
    return (inside, counts) if counts.sum() >= OFTEN * wall_s else nothing


def _steps(numbers: NDArray[np.int64]) -> Series:
    """From each label to the next; a count that began anew, or jumped, is one step."""
    apart = np.diff(numbers.astype(np.float64))
    usual = np.median(apart[apart > 0]) if (apart > 0).any() else 1.0
    return np.asarray(np.where((apart > 0) & (apart <= FAR * usual), apart, 1.0), np.float64)
