"""Which clocks disagree, as far as the recordings themselves tell.

A recording knows when its own clock was set. Two nodes are compared by the
collectives they shared: ranks may lag behind each other by an iteration, not by
many. How far two clocks are apart without that, no recording can tell.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ingero.units import MS

LEAST_ROUNDS = 8
MAX_ARRIVALS = 200_000
LEAST_NS = 100 * MS  # what NTP keeps well below
PERIODS = 4  # a rank that does not wait for the GPU runs ahead of the others by some iterations

_ARRIVALS = f"""
    SELECT e.node_id, c.comm_hash, c.seq, e.op_id, MIN(e.ts_ns)
    FROM collective c CROSS JOIN event e ON e.id = c.event_id
    WHERE c.comm_hash IS NOT NULL AND c.seq IS NOT NULL AND c.peer IS NULL
    GROUP BY 2, 3, 4, 1 LIMIT {MAX_ARRIVALS}"""
_STEPS = """
    SELECT n.name, COUNT(*), SUM(s.delta_ns * NOT s.adopted), MIN(s.at_ns), SUM(ABS(s.delta_ns))
    FROM clock_step s JOIN node n ON n.id = s.node_id GROUP BY 1 ORDER BY 1"""


@dataclass(frozen=True, slots=True)
class ClockNote:
    """Something about a node's clock. `offset_ns`: how far it is ahead, where that is known."""

    node: str
    what: str  # stepped, ahead-of, unknown
    than: str | None = None  # the node it is compared with
    offset_ns: int | None = None
    count: int | None = None  # steps, or collectives compared
    at_ns: int | None = None


def clock_notes(out: sqlite3.Connection) -> list[ClockNote]:
    """Sure things first."""
    return [*_steps(out), *_compared(out), *_unknown(out)]


def _steps(out: sqlite3.Connection) -> Iterator[ClockNote]:
    """A step back is not followed: times after it are ahead by as much."""
    for node, count, ignored_ns, at_ns, _ in out.execute(_STEPS):
        yield ClockNote(node, "stepped", None, -int(ignored_ns or 0), count, at_ns)


def _unknown(out: sqlite3.Connection) -> Iterator[ClockNote]:
    """The Go implementation does not note when the clock was set."""
    found = (
        "SELECT DISTINCT n.name FROM recording r JOIN node n ON n.id = r.node_id WHERE r.version GLOB 'go *'"
    )
    for (node,) in out.execute(f"{found} ORDER BY 1"):
        yield ClockNote(node, "unknown")


def _compared(out: sqlite3.Connection) -> Iterator[ClockNote]:
    names = dict(out.execute("SELECT id, name FROM node"))
    if len(names) < 2:
        return
    rounds: dict[tuple[int, int, int], dict[int, int]] = {}
    for node, comm, seq, op, at_ns in out.execute(_ARRIVALS):
        rounds.setdefault((comm, seq, op), {})[node] = at_ns
    pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for arrivals in rounds.values():
        first, *others = sorted(arrivals)
        for other in others:
            pairs.setdefault((first, other), []).append((arrivals[first], arrivals[other]))
    for (first, other), seen in sorted(pairs.items()):
        offset_ns = _offset_ns(seen)
        if offset_ns:
            yield ClockNote(names[other], "ahead-of", names[first], offset_ns, len(seen))


def _offset_ns(seen: list[tuple[int, int]]) -> int:
    """How far the second clock is ahead of the first; 0 where the difference may be the ranks' own."""
    if len(seen) < LEAST_ROUNDS:
        return 0
    starts = sorted(mine for mine, _ in seen)
    period_ns = median(b - a for a, b in pairwise(starts))
    offset_ns = int(median(its - mine for mine, its in seen))
    return offset_ns if abs(offset_ns) > max(LEAST_NS, PERIODS * period_ns) else 0
