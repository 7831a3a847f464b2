"""Names, kernels, processes and containers that no row refers to any more are deleted, a little at a time.

Jobs name their threads and start programs as they like, and a recording goes on for months:
such rows would only grow. Looking through everything that may refer to them takes minutes,
so it begins when there are many new ones and goes on for many windows, each reading a bounded
number of rows; what is handed out meanwhile is in the caches of those who hand it out, and stays.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ingero.units import MINUTE

ROWS_PER_STEP = 20_000
MANY = 2_000  # rows added since the last look
AGAIN_NS = 5 * MINUTE  # while there is no room
# Column that refers -> table that is referred to. A contract test holds the schema against this.
REFERRING = {
    "comm_id": "string", "waker_id": "string", "reason_id": "string", "key_id": "string",
    "kernel_id": "kernel", "process_id": "process", "cgroup_id": "container",
}  # fmt: skip
# Culprits, wakers and findings tell a process by its PID alone.
BY_PID = (
    ("culprit", "pid", True),
    ("waker", "waker_pid", True),
    ("wait_detail", "waker_pid", True),
    ("finding", "pid", True),
)
KEEP_NS = 10 * MINUTE  # a process that ended lately may be asked for by anybody
# Rows that say more of an owner: they keep it from nothing, and go with it.
BELONGING = {"container_label": ("cgroup_id", "container"), "process_label": ("process_id", "process")}
OWNERS = {"string": "id", "kernel": "id", "process": "id", "container": "cgroup_id"}


class Reference(NamedTuple):
    table: str
    columns: tuple[str, ...]
    numbered: bool  # has a rowid to go on from; the others are small and read at once


class Holder(NamedTuple):
    """Somebody who hands numbers out and remembers which."""

    forget: Callable[[], None]
    held: Callable[[], dict[str, set[int]]]


class Unused:
    """One look through everything after the other, for as long as the recording goes on."""

    def __init__(self, connection: sqlite3.Connection, holders: Iterable[Holder]) -> None:
        self._connection, self._holders = connection, tuple(holders)
        self._references = references(connection)
        self._looking: Iterator[None] | None = None
        self._used: dict[str, set[int]] = {}
        self._new, self._no_room, self._ended_ns = 0, False, 0

    def note(self, added: int, left_out: int) -> None:
        """How many rows came, and how many had no room."""
        self._new += added
        self._no_room |= left_out > 0

    def _wanted(self, newest_ns: int) -> bool:
        return self._new >= MANY or (self._no_room and newest_ns - self._ended_ns >= AGAIN_NS)

    def restart(self) -> None:
        """What was handed out is forgotten: what was seen so far is worth nothing."""
        self._looking = None

    def step(self, newest_ns: int) -> int:
        """Look at some rows; at the end of them delete what none referred to."""
        if self._looking is None:
            if not self._wanted(newest_ns):
                return 0
            self._new, self._no_room = 0, False
            self._used = {table: {0} for table in (*OWNERS, "pid")}
            for holder in self._holders:
                holder.forget()
            self._looking = self._look()
        if next(self._looking, self) is not self:
            return 0
        self._looking, self._ended_ns = None, newest_ns
        return self._delete(newest_ns - KEEP_NS)

    def _look(self) -> Iterator[None]:
        for reference in self._references:
            at: int | None = -(2**63) if reference.numbered else None
            while True:
                at = self._mark(reference, at)
                yield
                if at is None:
                    break

    def _mark(self, reference: Reference, at: int | None) -> int | None:
        """Note what some rows refer to; where to go on, None at the end."""
        table, columns = reference.table, ", ".join(reference.columns)
        if at is None:
            self._note(reference.columns, self._connection.execute(f"SELECT DISTINCT {columns} FROM {table}"))
            return None
        found = self._connection.execute(
            f"SELECT {columns}, rowid FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT {ROWS_PER_STEP}",
            (at,),
        ).fetchall()
        self._note(reference.columns, found)
        return int(found[-1][-1]) if len(found) == ROWS_PER_STEP else None

    def _note(self, columns: tuple[str, ...], rows: Iterable[tuple[int | None, ...]]) -> None:
        for column, values in zip(columns, zip(*rows, strict=True), strict=False):
            self._used[REFERRING.get(column, "pid")].update(
                value for value in set(values) if value is not None
            )

    def _delete(self, before_ns: int) -> int:
        for holder in self._holders:
            for table, numbers in holder.held().items():
                self._used[table] |= numbers
        self._connection.execute(
            "CREATE TEMP TABLE IF NOT EXISTS used (what, id INTEGER, PRIMARY KEY (what, id)) WITHOUT ROWID"
        )
        self._connection.execute("DELETE FROM temp.used")
        for what, numbers in self._used.items():
            self._connection.executemany(
                "INSERT INTO temp.used VALUES (?, ?)", ((what, number) for number in numbers)
            )
        self._used = {}
        gone = sum(
            self._connection.execute(
                f"DELETE FROM {table} WHERE {column} NOT IN {_USED.format(table)}{_ALSO.get(table, '')}",
                {"before_ns": before_ns},
            ).rowcount
            for table, column in OWNERS.items()
        )
        for table, (column, owner) in BELONGING.items():
            self._connection.execute(
                f"DELETE FROM {table} WHERE {column} NOT IN (SELECT {OWNERS[owner]} FROM {owner})"
            )
        for holder in self._holders:
            holder.forget()
        return gone


_USED = "(SELECT id FROM temp.used WHERE what = '{}')"
_ALSO = {
    # Ended, or never a target, or left over from an earlier recording that was killed.
    "process": f" AND pid NOT IN {_USED.format('pid')} AND COALESCE(end_ns, first_seen_ns) < :before_ns"
    " AND (end_ns IS NOT NULL OR NOT target OR first_seen_ns < (SELECT MAX(started_ns) FROM recording))",
    "container": " AND cgroup_id NOT IN (SELECT cgroup_id FROM process WHERE cgroup_id IS NOT NULL)",
}


def references(connection: sqlite3.Connection) -> list[Reference]:
    """Every table that refers to a name, a kernel, a process or a container."""
    tables = connection.execute(
        "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
    )
    found = []
    for table, without_rowid in tables.fetchall():
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        columns = tuple(name for name in names if name in REFERRING and table not in (*OWNERS, *BELONGING))
        if columns:
            found.append(Reference(table, columns, not without_rowid))
    return found + [Reference(table, (column,), numbered) for table, column, numbered in BY_PID]
