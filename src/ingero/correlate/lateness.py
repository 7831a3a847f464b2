"""Which node's ranks the others wait for, by how much and from when to when, on one clock of their
collectives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ingero.correlate.meetings import LEAST_ROUNDS, NEVER, Meeting, RankMember, Times
from ingero.model.clocks import ClockOffset, Clocks
from ingero.units import MS, SECOND

# Which node's ranks the others wait for, by how much, and from when to when.
#
# Arrivals are compared on one clock, with its error. What a late node costs is how much later
# its last rank comes than the last one of all others: that much sooner the collective could
# begin. It is late by the middle of the others, which one more late rank does not move.

LAST_SHARE = 0.6  # of all waiting is for one node
ALSO_LATE = 0.5  # of the latest rank's lateness: then that one is late, too
EDGE = 0.15  # of what it usually is late by: with less, it is in time
EVERY = 0.9  # of the rounds: "in every step"
Series = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LateNode:
    """The ranks of one node that the ranks of all others wait for."""

    node: str
    members: tuple[RankMember, ...]  # the late ones, the latest first
    late_ns: int  # in the middle of these rounds
    error_ns: int | None  # of that, by the clocks; None: nobody knows
    cost_ns: int  # how much sooner the collectives could have begun, in all
    rounds: int  # from the first to the last round in which it is late
    late_rounds: int  # of those: it came last
    first: int  # numbers of rounds
    last: int
    first_ns: int  # on the common clock
    last_ns: int
    amid: bool  # it was in time before

    @property
    def certain(self) -> bool:
        return self.error_ns is not None and self.late_ns > self.error_ns

    @property
    def every(self) -> bool:
        return self.late_rounds >= EVERY * self.rounds


def common_arrivals(meeting: Meeting, clocks: Clocks) -> Times:
    """Rounds by ranks, on the common clock."""
    columns = [clocks.common_ns(member.node, meeting.at[:, at]) for at, member in enumerate(meeting.members)]
    return np.stack(columns, axis=1)


def late_node(meeting: Meeting, clocks: Clocks) -> LateNode | None:
    """The node that most of the waiting is for; None where there is none, or they take turns."""
    arrivals = common_arrivals(meeting, clocks)
    cost = {node: _cost(meeting, arrivals, clocks, node) for node in meeting.nodes}
    total = sum(float(each.sum()) for each in cost.values())
    node = max(cost, key=lambda name: float(cost[name].sum()))
    if not total or cost[node].sum() < LAST_SHARE * total:
        return None
    late = _latest(meeting, arrivals, node)
    first, last = _stretch(late)
    if last - first + 1 < LEAST_ROUNDS:
        return None
    rounds = slice(first, last + 1)
    mine = cost[node][rounds]
    return LateNode(
        node,
        _late_members(meeting, arrivals[rounds], node),
        int(np.median(_latest(meeting, arrivals[rounds], node))),
        _error_ns(meeting, clocks, node, int(arrivals[first].min())),
        int(mine.sum()),
        len(mine),
        int((mine > 0).sum()),
        first,
        last,
        int(np.median(arrivals[first])),
        int(arrivals[last].max()),
        first >= LEAST_ROUNDS,
    )


def _sides(meeting: Meeting, arrivals: Times, node: str) -> tuple[Times, Times]:
    mine = meeting.columns(node)
    others = [at for at in range(len(meeting.members)) if at not in mine]
    return arrivals[:, mine], arrivals[:, others]


def _lateness(meeting: Meeting, arrivals: Times, node: str) -> dict[int, Series]:
    """Of each of the node's ranks, behind the middle of all other nodes'."""
    _, others = _sides(meeting, arrivals, node)
    middle: Series = np.median(_relative_all(others, arrivals), axis=1)
    return {at: _relative(arrivals[:, at], arrivals) - middle for at in meeting.columns(node)}


def _latest(meeting: Meeting, arrivals: Times, node: str) -> Series:
    """Of the node's rank that is late most."""
    return max(_lateness(meeting, arrivals, node).values(), key=lambda late: float(np.maximum(late, 0).sum()))


def _relative(at: Times, arrivals: Times) -> Series:
    found: Series = (at - arrivals[:, 0]).astype(np.float64)
    return found


def _relative_all(at: Times, arrivals: Times) -> Series:
    found: Series = (at - arrivals[:, :1]).astype(np.float64)
    return found


def _cost(meeting: Meeting, arrivals: Times, clocks: Clocks, node: str) -> Series:
    """By round: how much later than the last of the other nodes'. A host that gives its GPU work late
    costs nothing as long as it then waits for it as long as the others do."""
    mine, others = _sides(meeting, arrivals, node)
    cost: Series = np.maximum(0, mine.max(axis=1) - others.max(axis=1)).astype(np.float64)
    longer = _waits_longer(meeting, arrivals, clocks, node)
    found: Series = np.where(np.isnan(longer), cost, np.minimum(cost, np.maximum(longer, 0.0)))
    return found


def _waits_longer(meeting: Meeting, arrivals: Times, clocks: Clocks, node: str) -> Series:
    """By round: by how much the others, in the middle, wait longer for the GPU than this node's last rank.

    What a rank's GPU does after the common end is its own work, and no wait for anybody.
    """
    ends = np.stack(
        [clocks.common_ns(member.node, meeting.done[:, at]) for at, member in enumerate(meeting.members)],
        axis=1,
    )
    waits = np.where(meeting.done == NEVER, np.nan, (ends - arrivals).astype(np.float64))
    columns = meeting.columns(node)
    others = [at for at in range(len(meeting.members)) if at not in columns]
    found: Series = np.full(len(waits), np.nan)
    known = ~np.isnan(waits[:, columns]).any(axis=1) & ~np.isnan(waits[:, others]).all(axis=1)
    if not known.any():
        return found
    waits, came = waits[known], _relative_all(arrivals, arrivals)[known]
    end = np.nanmedian((waits + came)[:, others], axis=1)
    own = np.minimum(waits[:, columns], end[:, None] - came[:, columns]).min(axis=1)
    found[known] = np.nanmedian(waits[:, others], axis=1) - np.maximum(own, 0.0)
    return found


def _stretch(late: Series) -> tuple[int, int]:
    """From the first to the last round of the time in which it is late most."""
    behind = np.sort(np.maximum(late, 0.0))
    if not behind.any():
        return 0, -1
    # Half of all lateness is in rounds with more: those in time do not count, however many they are.
    level = EDGE * float(behind[np.searchsorted(behind.cumsum(), behind.sum() / 2)])
    gain = np.clip(late, -2 * level, 2 * level) - level
    best, best_at, start, total = -np.inf, (0, 0), 0, 0.0
    for at, each in enumerate(gain):
        if total <= 0:
            start, total = at, 0.0
        total += float(each)
        if total > best:
            best, best_at = total, (start, at)
    return best_at


def _late_members(meeting: Meeting, arrivals: Times, node: str) -> tuple[RankMember, ...]:
    late = {at: float(np.median(each)) for at, each in _lateness(meeting, arrivals, node).items()}
    most = max(late.values())
    chosen = sorted((at for at in late if late[at] >= ALSO_LATE * most), key=lambda at: -late[at])
    return tuple(meeting.members[at] for at in chosen)


def _error_ns(meeting: Meeting, clocks: Clocks, node: str, at_ns: int) -> int | None:
    """Of the node's clock against the middle of the others'."""
    mine = clocks.error_ns(node, at_ns)
    others = [clocks.error_ns(each, at_ns) for each in meeting.nodes if each != node]
    known = [each for each in others if each is not None]
    if mine is None or len(known) < len(others):  # one that is not known may be the latest, or the earliest
        return None
    return mine + int(np.median(known))


# One clock for the ranks of a communicator, from the collectives themselves.
#
# All ranks of a collective are let go together: nobody's GPU is done before the last one came,
# and then all are. So when their waits for the GPU end is the same instant, told by each
# node's own clock, and the difference is how far the clocks are apart. When they *come* tells
# nothing about the clocks: a rank that is late and a clock that is ahead look the same by that.
#
# A wait may end late, when the thread does not get its core at once, and never early: so what
# most rounds agree on counts, not the mean. Clocks drift: each stretch of some seconds
# has its own offset.


BLOCK_NS = 10 * SECOND  # a bad clock drifts by half a millisecond in it
LEAST_SHARED_ROUNDS = 8  # to agree on something
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
        whole = at == len(at_ns) or (
            at - start >= LEAST_SHARED_ROUNDS and at_ns[at] - at_ns[start] >= BLOCK_NS
        )
        if whole and at - start >= LEAST_SHARED_ROUNDS:
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
