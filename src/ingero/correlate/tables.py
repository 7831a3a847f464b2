"""Facts by slice and thread, so that nobody searches arrays twice."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple, TypeVar

import numpy as np

from ingero.model.facts import Facts
from ingero.model.window import BUCKET_NAMES, Records

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
