"""One clock for the ranks of a communicator, from the collectives themselves.

All ranks of a collective are let go together: nobody's GPU is done before the last one came,
and then all are. So when their waits for the GPU end is the same instant, told by each
node's own clock, and the difference is how far the clocks are apart. When they *come* tells
nothing about the clocks: a rank that is late and a clock that is ahead look the same by that.

A wait may end late, when the thread does not get its core at once, and never early: so what
most rounds agree on counts, not the mean. Clocks drift: each stretch of some seconds
has its own offset.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from ingero.correlate.meetings import NEVER, Meeting, Times
from ingero.model.clocks import ClockOffset, Clocks
from ingero.units import MS, SECOND

BLOCK_NS = 10 * SECOND  # a bad clock drifts by half a millisecond in it
LEAST_ROUNDS = 8  # to agree on something
MOST_NS = 50 * MS  # half of the rounds must agree within this, or they do not end together at all
BY_ENDS = "collectives"
LEAST_ERROR_NS = MS // 5  # waking up takes some time, on every node its own


def agreed(differences: Times) -> tuple[int, int]:
    """What half of them, those closest to each other, say; and within how much."""
    ordered = np.sort(differences)
    half = len(ordered) // 2 + 1
    widths = ordered[half - 1 :] - ordered[: len(ordered) - half + 1]
    first = int(np.argmin(widths))
    return int(np.median(ordered[first : first + half])), int(widths[first])


def clocks_of(meeting: Meeting, known: Clocks) -> Clocks:
    """Relative to the first rank's node. `known`: what was measured or given before."""
    reference = meeting.members[0].node
    found: dict[str, list[ClockOffset]] = {}
    for node in meeting.nodes:
        if node != reference:
            told = by_ends(meeting, node, reference)
            chosen = _checked(meeting, node, reference, told, known)
            if chosen:
                found[node] = chosen
    by_others = any(each.how != BY_ENDS for chosen in found.values() for each in chosen)
    at_ns = int(meeting.at[0, 0])
    error_ns = known.error_ns(reference, at_ns) if by_others else 0
    return Clocks({reference: [ClockOffset(reference, at_ns, 0, error_ns, "reference")], **found})


def by_ends(meeting: Meeting, node: str, reference: str) -> list[ClockOffset]:
    """How far a node's clock is ahead of the reference's, block by block."""
    mine, its = (_first_end(meeting, name) for name in (node, reference))
    both = (mine != NEVER) & (its != NEVER)
    mine, differences = mine[both], (mine - its)[both]
    found = []
    for block in _blocks(mine):
        offset_ns, width_ns = agreed(differences[block])
        if width_ns <= MOST_NS:
            at_ns = int(np.median(mine[block]))
            error_ns = max(LEAST_ERROR_NS, width_ns)
            found.append(ClockOffset(node, at_ns, offset_ns, error_ns, BY_ENDS))
    return _drifting(found)


def _drifting(offsets: list[ClockOffset]) -> list[ClockOffset]:
    """Between the middles of two blocks a clock drifts evenly."""
    rates = [
        (after.offset_ns - before.offset_ns) / max(after.from_ns - before.from_ns, 1)
        for before, after in pairwise(offsets)
    ]
    return [replace(each, rate=rate) for each, rate in zip(offsets, [*rates, 0.0], strict=False)]


def _first_end(meeting: Meeting, node: str) -> Times:
    """Of the node's ranks the one that noticed first: the others got their core later."""
    done = meeting.done[:, meeting.columns(node)]
    never = np.iinfo(np.int64).max
    first = np.where(done == NEVER, never, done).min(axis=1)
    return np.where(first == never, NEVER, first)


def _blocks(at_ns: Times) -> list[slice]:
    """Rounds in order of time, in stretches of some seconds and with enough rounds each."""
    found: list[slice] = []
    start = 0
    for at in range(1, len(at_ns) + 1):
        whole = at == len(at_ns) or (at - start >= LEAST_ROUNDS and at_ns[at] - at_ns[start] >= BLOCK_NS)
        if whole and at - start >= LEAST_ROUNDS:
            found.append(slice(start, at))
            start = at
    return found


def _checked(
    meeting: Meeting, node: str, reference: str, told: list[ClockOffset], known: Clocks
) -> list[ClockOffset]:
    """What the ends tell is closer than what was measured, and wrong where they were no common end:
    then the measured offset gives it the lie."""
    at = meeting.at[:, meeting.columns(node)[0]]
    measured = [
        _between(known, node, reference, each)
        for each in ([each.from_ns for each in told] or [int(at[0]), int(at[-1])])
    ]
    if any(each.error_ns is None for each in measured):
        return told
    third_ns = known.error_ns(reference, int(at[0])) or 0
    agree = all(
        abs(one.offset_ns - other.offset_ns) <= (one.error_ns or 0) + (other.error_ns or 0) + third_ns
        for one, other in zip(told, measured, strict=False)
    )
    return told if told and agree else measured


def _between(known: Clocks, node: str, reference: str, at_ns: int) -> ClockOffset:
    """Two measured offsets, each against a third clock; the error is this node's part of it."""
    at = np.array([at_ns], np.int64)
    offset_ns = int((known.offset_ns(node, at) - known.offset_ns(reference, at))[0])
    error_ns = known.error_ns(node, at_ns) if known.knows(reference) else None
    how = known.by_node[node][-1].how if known.knows(node) else "unknown"
    return ClockOffset(node, at_ns, offset_ns, error_ns, how)
