"""Facts put in order before anybody looks: by slice and thread, by family of processes, and by graph
capture.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from ingero.model.facts import Facts, Marks, ProcessFact
from ingero.model.window import BUCKET_NAMES, Records

# Facts by slice and thread, so that nobody searches arrays twice.

ThreadKey = tuple[int, int]  # slice, tid
N = TypeVar("N", "Waker", "Culprit")


class Waker(NamedTuple):
    """A row of model.facts.WAKERS, its columns in their order: plain numbers are read faster one by one."""

    slice: int
    pid: int
    tid: int
    waker_pid: int
    waker_tid: int
    kind: int
    comm: int
    bucket: int
    ns: int
    times: int


class Culprit(NamedTuple):
    """A row of model.facts.CULPRITS."""

    slice: int
    victim_pid: int
    victim_tid: int
    pid: int
    comm: int
    throttled: int
    ns: int
    times: int


class Tables:
    """Look-ups into the facts."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.threads = {
            (int(s), int(t)): row
            for s, t, row in zip(facts.threads["slice"], facts.threads["tid"], facts.threads, strict=True)
        }
        self.culprits = _listed(facts.culprits, Culprit, "victim_tid")
        self.wakers = _listed(facts.wakers, Waker, "tid")
        self.operations = _grouped(facts.operations, "pid")
        self.by_process: dict[ThreadKey, list[np.void]] = defaultdict(list)
        for row in facts.threads:
            self.by_process[int(row["slice"]), int(row["pid"])].append(row)

    def thread(self, number: int, tid: int) -> np.void | None:
        return self.threads.get((number, tid))

    def name(self, row: np.void) -> str:
        """The thread's name."""
        return self.facts.strings.get(int(row["comm"]), "?")

    def op_kind(self, number: int) -> str:
        known = self.facts.ops.get(number)
        return known.kind if known else "other"


def _grouped(rows: Records, key: str) -> dict[ThreadKey, Records]:
    """Rows by slice and one more column."""
    if not len(rows):
        return {}
    order = np.lexsort((rows[key], rows["slice"]))
    rows = rows[order]
    change = (np.diff(rows["slice"]) != 0) | (np.diff(rows[key]) != 0)
    parts = np.split(rows, np.flatnonzero(change) + 1)
    return {(int(part["slice"][0]), int(part[key][0])): part for part in parts}


def _listed(rows: Records, made: type[N], key: str) -> dict[ThreadKey, list[N]]:
    """The same, as plain rows."""
    found: dict[ThreadKey, list[N]] = defaultdict(list)
    for number, tid, row in zip(rows["slice"].tolist(), rows[key].tolist(), rows.tolist(), strict=True):
        found[number, tid].append(made._make(row))
    return dict(found)


def by_name(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> dict[str, int]:
    return {name: int(ns) for name, ns in zip(BUCKET_NAMES, values, strict=True)}


# Which processes belong together: who started whom.


MAX_GENERATIONS = 32  # a loop in what /proc said must not hang us


class Family:
    """Parents and children among the processes seen."""

    def __init__(self, processes: Mapping[int, ProcessFact]) -> None:
        self._parents = {pid: process.parent_pid for pid, process in processes.items()}

    def ancestors(self, pid: int) -> list[int]:
        found: list[int] = []
        parent = self._parents.get(pid)
        while parent and parent > 1 and len(found) < MAX_GENERATIONS:
            found.append(parent)
            parent = self._parents.get(parent)
        return found

    def works_for(self, pid: int, boss: int) -> bool:
        """Started by `boss`, directly or not, or it itself."""
        return pid == boss or boss in self.ancestors(pid)

    def related(self, one: int, other: int) -> bool:
        return self.works_for(one, other) or self.works_for(other, one)


# Time spent capturing CUDA graphs: from the call that begins a capture to the one that ends it.
#
# What a program launches in between only fills the graph: the GPU gets nothing of it, and
# with a graph that is kept nobody would do it again.


# The runtime's, or the driver's where that is called directly; never both of one capture.
PAIRS = (("cudaStreamBeginCapture", "cudaStreamEndCapture"), ("cuStreamBeginCapture", "cuStreamEndCapture"))


def capture_ns(facts: Facts, tables: Tables, pid: int, slices: list[int]) -> dict[int, int]:
    """Of a process, by the slice in which the capture ended."""
    used = {int(op) for number in slices for op in tables.operations[number, pid]["op"]}
    for begin, end in PAIRS:
        begins, ends = (_marks(facts, pid, used, name) for name in (begin, end))
        if len(begins) and len(ends):
            return _by_slice(facts, begins[:, 0], ends.sum(axis=1))
    return {}


def _marks(facts: Facts, pid: int, used: set[int], prefix: str) -> Marks:
    """Recorded calls of all forms of a function, in order."""
    ops = [op for op in used if op in facts.ops and facts.ops[op].name.startswith(prefix)]
    found = np.concatenate([np.zeros((0, 2), np.int64), *(facts.marks(pid, op) for op in ops)])
    return found[np.argsort(found[:, 0], kind="stable")]


def _by_slice(facts: Facts, begins: Marks, ends: Marks) -> dict[int, int]:
    """An end belongs to the last begin before it that has none yet."""
    found: dict[int, int] = defaultdict(int)
    at = np.searchsorted(begins, ends, side="right") - 1
    for last, before, end in zip(at, np.concatenate([[-1], at[:-1]]), ends, strict=True):
        if last > before:
            found[int((end - facts.origin_ns) // facts.slice_ns)] += int(end - begins[last])
    return dict(found)
