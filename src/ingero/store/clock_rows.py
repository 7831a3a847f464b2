"""Offsets of nodes' clocks: what was measured or given when recordings were merged."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from ingero.errors import UsageError
from ingero.model.clocks import ClockOffset
from ingero.units import clean

GIVEN_ERROR_NS = 1_000_000  # of offsets that somebody gives without one
_COLUMNS = "from_ns, offset_ns, error_ns, how, rate"


def save_offsets(connection: sqlite3.Connection, offsets: Iterable[ClockOffset]) -> None:
    """Into a merged database: what is known anew about a node replaces what was.

    Whoever says that some clocks are ahead means: of the others. So those have an offset of 0, unless more
    is known about them.
    """
    offsets = list(offsets)
    if not offsets:
        return
    ids = dict(connection.execute("SELECT name, id FROM node"))
    for node in dict.fromkeys(each.node for each in offsets):
        if node not in ids:
            known = ", ".join(clean(name, 60) for name in sorted(ids)[:20])
            raise UsageError(
                f"--clock-offset names {clean(node, 60)!r}, which is in none of the files",
                hint=f"They have {known}.",
            )
        connection.execute("DELETE FROM clock_offset WHERE node_id = ?", (ids[node],))
    largest = max((each.error_ns or 0 for each in offsets), default=0)
    connection.executemany(
        f"INSERT OR REPLACE INTO clock_offset (node_id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
        [(ids[e.node], e.from_ns, e.offset_ns, e.error_ns, e.how, e.rate) for e in offsets],
    )
    if any(each.how == "given" for each in offsets):
        connection.execute(
            f"INSERT OR IGNORE INTO clock_offset (node_id, {_COLUMNS})"
            " SELECT id, 0, 0, ?, 'given', 0 FROM node WHERE id NOT IN (SELECT node_id FROM clock_offset)",
            (largest,),
        )


def read_offsets(connection: sqlite3.Connection) -> list[ClockOffset]:
    """The file may come from anybody: what makes no sense is left out."""
    rows = connection.execute(
        f"SELECT n.name, {', '.join('k.' + name for name in _COLUMNS.split(', '))}"
        " FROM clock_offset k JOIN node n ON n.id = k.node_id ORDER BY k.from_ns LIMIT 100000"
    )
    return [
        ClockOffset(node, from_ns, offset_ns, error_ns, str(how), float(rate))
        for node, from_ns, offset_ns, error_ns, how, rate in rows
        if all(isinstance(each, int) for each in (from_ns, offset_ns))
        and (error_ns is None or (isinstance(error_ns, int) and error_ns >= 0))
        and isinstance(rate, float)
        and abs(rate) < 1
    ]
