"""Time spent capturing CUDA graphs: from the call that begins a capture to the one that ends it.

What a program launches in between only fills the graph: the GPU gets nothing of it, and
with a graph that is kept nobody would do it again.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ingero.correlate.tables import Tables
from ingero.model.facts import Facts, Marks

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
