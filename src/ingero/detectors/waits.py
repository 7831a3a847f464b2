"""How long a process's waits for the GPU take, and who is busy: what hangs are told from."""

from __future__ import annotations

import numpy as np

from ingero.model.facts import Facts
from ingero.model.layout import Bucket
from ingero.units import SECOND

FAR = 5  # times the longest wait that ended: a wait of another kind
FIRST_NS = 30 * SECOND  # so long a first wait may take: whole epochs are given to a GPU at once
WORKING = (Bucket.HOST_CPU, Bucket.CUDA_CPU, Bucket.DISK_WAIT, Bucket.MEMORY_WAIT, Bucket.RUNQUEUE)
LAYERS = ("runtime", "driver", "graph", "nccl")


def ops_of_kind(facts: Facts, *kinds: str) -> list[int]:
    return [number for number, op in facts.ops.items() if op.kind in kinds and op.layer in LAYERS]


def longest_wait_ns(facts: Facts, pid: int) -> int:
    """The longest synchronising call of a process that returned; 0: none did."""
    rows = facts.operations
    mine = rows[(rows["pid"] == pid) & np.isin(rows["op"], ops_of_kind(facts, "sync"))]
    return int(mine["max_ns"].max()) if len(mine) else 0


def calls_after(facts: Facts, pid: int, at_ns: int) -> bool:
    """Whether a process called CUDA or NCCL in a slice that began after this."""
    ours = [number for number, op in facts.ops.items() if op.layer in LAYERS]
    rows = facts.operations
    mine = rows["slice"][(rows["pid"] == pid) & np.isin(rows["op"], ours)]
    return bool(len(mine)) and facts.at_ns(int(mine.max())) > at_ns


def is_busy(facts: Facts, pid: int) -> bool:
    """A thread of it worked, or wanted to, for most of the last slices it was seen in."""
    rows = facts.threads[facts.threads["pid"] == pid]
    if not len(rows):
        return False
    last = rows[rows["slice"] >= rows["slice"].max() - 1]
    for tid in np.unique(last["tid"]):
        ns = last["ns"][last["tid"] == tid].sum(axis=0)
        if 2 * sum(int(ns[bucket]) for bucket in WORKING) > int(ns.sum()):
            return True
    return False
