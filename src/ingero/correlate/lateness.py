"""Which node's ranks the others wait for, by how much, and from when to when.

Arrivals are compared on one clock, with its error. What a late node costs is how much later
its last rank comes than the last one of all others: that much sooner the collective could
begin. It is late by the middle of the others, which one more late rank does not move.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingero.correlate.meetings import LEAST_ROUNDS, NEVER, Meeting, Member, Times
from ingero.model.clocks import Clocks

LAST_SHARE = 0.6  # of all waiting is for one node
ALSO_LATE = 0.5  # of the latest rank's lateness: then that one is late, too
EDGE = 0.15  # of what it usually is late by: with less, it is in time
EVERY = 0.9  # of the rounds: "in every step"
Series = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Late:
    """The ranks of one node that the ranks of all others wait for."""

    node: str
    members: tuple[Member, ...]  # the late ones, the latest first
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


def late_node(meeting: Meeting, clocks: Clocks) -> Late | None:
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
    return Late(
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


def _late_members(meeting: Meeting, arrivals: Times, node: str) -> tuple[Member, ...]:
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
