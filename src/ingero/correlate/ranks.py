"""Collectives of communicators that were made before the trace began.

Their number on the communicator is not known, so the ranks' collectives are laid side
by side by time: nobody enters the next one before everybody entered this one. A rank that
is late by half a step and one that is early by half a step look the same by that; but
nobody's wait for the GPU ends before the last one came.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ingero.model.facts import Arrival

REACH = 40  # collectives by which two ranks' first ones may differ
NEVER = np.iinfo(np.int64).max
MATCHED = 0.7  # of them must fit, or the ranks have nothing to do with each other
Times = NDArray[np.int64]


def align(unmatched: Iterable[Arrival]) -> list[Arrival]:
    """With numbers that agree between the ranks; those that fit nowhere are left out."""
    groups: dict[tuple[int, str, int, int | None], dict[int, list[Arrival]]] = defaultdict(dict)
    for each in unmatched:
        group = groups[each.comm_hash, each.op, each.nranks, each.bytes]
        group.setdefault(each.rank, []).append(each)
    found: list[Arrival] = []
    for members in groups.values():
        found.extend(_numbered(members))
    return found


def _numbered(members: dict[int, list[Arrival]]) -> list[Arrival]:
    ranks = sorted(members)
    ordered = {rank: sorted(members[rank], key=lambda each: each.at_ns) for rank in ranks}
    first = _times(ordered[ranks[0]])
    found: list[Arrival] = []
    for rank in ranks:
        shift = best_shift(first, _times(ordered[rank])) if rank != ranks[0] else 0
        if shift is not None:
            found.extend(each._replace(seq=at - shift + REACH) for at, each in enumerate(ordered[rank]))
    return found


def _times(arrivals: list[Arrival]) -> Times:
    """When each came, and when it was known to be over; never, where that is not known."""
    return np.array([(each.at_ns, each.done_ns or NEVER) for each in arrivals], np.int64).reshape(-1, 2)


def best_shift(first: Times, other: Times) -> int | None:
    """By how many `other` is ahead of `first`."""
    scored = [(*_fit(first, other, shift), shift) for shift in range(-REACH, REACH + 1)]
    fits, *_, shift = max(scored)
    return int(shift) if fits >= MATCHED else None


def _fit(first: Times, other: Times, shift: int) -> tuple[float, float, float]:
    """Part of the rounds that both could have made together, part in which nobody was done before
    the other came, and minus their mean distance."""
    start, end = max(0, -shift), min(len(first), len(other) - shift)
    if end - start < 3:
        return 0.0, 0.0, 0.0
    (ours, our_end), (theirs, their_end) = first[start:end].T, other[start + shift : end + shift].T
    fits = (ours[:-1] <= theirs[1:]) & (theirs[:-1] <= ours[1:])
    waited = (theirs <= our_end) & (ours <= their_end)
    together = float(fits.mean()) * min(1.0, (end - start) / (0.5 * min(len(first), len(other))))
    return round(together, 2), round(float(waited.mean()), 1), -float(np.abs(ours - theirs).mean())
