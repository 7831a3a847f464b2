"""Facts by slice and thread, so that nobody searches arrays twice."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ingero.model.facts import Facts
from ingero.model.window import BUCKET_NAMES, Records

ThreadKey = tuple[int, int]  # slice, tid


class Tables:
    """Look-ups into the facts."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.threads = {
            (int(s), int(t)): row
            for s, t, row in zip(facts.threads["slice"], facts.threads["tid"], facts.threads, strict=True)
        }
        self.culprits = _grouped(facts.culprits, "victim_tid")
        self.wakers = _grouped(facts.wakers, "tid")
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


def by_name(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> dict[str, int]:
    return {name: int(ns) for name, ns in zip(BUCKET_NAMES, values, strict=True)}
