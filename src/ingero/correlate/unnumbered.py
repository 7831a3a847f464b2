"""Collectives without a number, of communicators that were met amid a job, laid side by side across nodes.

Ranks of one node are laid side by side by time (ranks.py). Clocks of nodes may be apart by more than a
step, so here the steps' own unevenness decides: all ranks are let go together, so the ends of their waits
for the GPU follow each other at the same distances on every node, and at no other place do they fit as well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

REACH_NS = 2_000_000_000  # clocks that are further apart are not looked for
LEAST_ENDS = 20  # fewer fit by chance
MOST_ENDS = 400  # that are tried, the latest
AS_GOOD = 1.5  # times as wide as the best: then the clocks that are nearer are right
LEAST_WIDTH_NS = 50_000
OVERLAP = 0.5  # of the shorter one
NEAR = 0.4  # of a step: an end that lies further off is another step's

Times = NDArray[np.int64]


def offset_between(mine: Times, its: Times) -> int | None:
    """By how much `its` ends are later than `mine`, where they are those of the same steps."""
    mine, its = mine[-MOST_ENDS:], its[-MOST_ENDS:]
    shorter = min(len(mine), len(its))
    if shorter < LEAST_ENDS:
        return None
    scored = []
    for shift in range(-len(mine) + 1, len(its)):
        start, end = max(0, -shift), min(len(mine), len(its) - shift)
        if end - start < max(LEAST_ENDS, OVERLAP * shorter):
            continue
        apart = its[start + shift : end + shift] - mine[start:end]
        middle = int(np.median(apart))
        if abs(middle) <= REACH_NS:
            scored.append((float(np.median(np.abs(apart - middle))), middle))
    if not scored:
        return None
    least = max(min(scored)[0], LEAST_WIDTH_NS)
    return min((abs(middle), middle) for width, middle in scored if width <= AS_GOOD * least)[1]


def matched(mine: Times, its: Times, offset_ns: int) -> NDArray[np.int64]:
    """For each of my ends the place of its one of the same step; -1: there is none."""
    if len(mine) < 2 or not len(its):
        return np.full(len(mine), -1, np.int64)
    there = its - offset_ns
    right = np.clip(np.searchsorted(there, mine), 1, max(len(there) - 1, 1))
    left = right - 1
    right = np.minimum(right, len(there) - 1)
    nearest = np.where(np.abs(there[left] - mine) <= np.abs(there[right] - mine), left, right)
    near = np.abs(there[nearest] - mine) <= NEAR * np.median(np.diff(mine))
    found: NDArray[np.int64] = np.where(near, nearest, -1)
    return found
