"""The job's loop, found from its calls: which call marks an iteration, how long one takes.

Every iteration makes the same calls, so all counts of a job are multiples of its
number of iterations: the least frequent call that still comes steadily marks them.
A call that was watched a part of the time marks none while there is another: its count
is an estimate, and what changes when it is watched less is not the job. Unless it is surely
far rarer than every call that is always watched: then, and where the estimate is rough,
iterations are taken to be as many in one slice as in the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ingero.correlate.tables import Tables
from ingero.model.facts import Facts

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
