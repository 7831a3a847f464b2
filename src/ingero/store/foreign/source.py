"""A database of the Go implementation, opened for reading.

SQLite keeps any type in any column, so nothing is trusted: a number that is not an
integer and a text that is not text are NULL. Tables and columns that a version
does not have are NULL too; only what no answer can do without is required.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingero.errors import StoreError, StoreVersionError
from ingero.store import opening
from ingero.store.names import Names
from ingero.units import DAY

NEWEST = (0, 10)  # also `PRAGMA user_version` 10
LONGEST_NS = 30 * DAY  # a duration above is no measurement
LATEST_NS = 1 << 62  # year 2116: sums with durations still fit 64 bits
REQUIRED = ("id", "timestamp", "pid", "tid", "source", "op", "duration")
TEXT_LIMIT = 4096
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})")


def recognised(connection: sqlite3.Connection) -> bool:
    """Whether this looks like a database of the Go implementation."""
    if connection.execute("PRAGMA application_id").fetchone()[0]:
        return False
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    names = {str(row[0]) for row in found}
    return "events" in names and bool(names & {"schema_info", "sources"}) and "migration" not in names


@dataclass(slots=True)
class GoDatabase:
    """What is asked of the file; every answer is made of plain, bounded values."""

    connection: sqlite3.Connection
    path: Path
    columns: dict[str, frozenset[str]]
    version: str  # 0.8, 0.9, 0.10

    def has(self, table: str, *columns: str) -> bool:
        return table in self.columns and self.columns[table] >= set(columns)

    def whole(self, table: str, column: str) -> str:
        """SQL for an integer column; NULL for anything else in it."""
        if not self.has(table, column):
            return "NULL"
        return f'CASE typeof("{column}") WHEN \'integer\' THEN "{column}" END'

    def between(self, table: str, column: str, low: int, high: int) -> str:
        """SQL for an integer column; NULL outside of these bounds."""
        value = self.whole(table, column)
        return "NULL" if value == "NULL" else f"CASE WHEN {value} BETWEEN {low} AND {high} THEN {value} END"

    def real(self, table: str, column: str) -> str:
        if not self.has(table, column):
            return "NULL"
        return f"CASE WHEN typeof(\"{column}\") IN ('integer', 'real') THEN \"{column}\" END"

    def text(self, table: str, column: str, limit: int = TEXT_LIMIT) -> str:
        """SQL for a text column; NULL for an empty one."""
        if not self.has(table, column):
            return "NULL"
        return f"CASE typeof(\"{column}\") WHEN 'text' THEN NULLIF(substr(\"{column}\", 1, {limit}), '') END"

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self.connection.execute(sql, parameters)
        except (sqlite3.Error, OverflowError) as error:
            raise _unreadable(self.path, error) from error

    def number(self, sql: str) -> int:
        """The one number this asks for; 0 for none."""
        return int(next(self.rows(sql), (0,))[0] or 0)


def open_source(connection: sqlite3.Connection, path: Path) -> GoDatabase:
    """Look at the file; refuses what is newer or lacks what every answer needs."""
    try:
        columns = _columns(connection)
        version = _version(connection, path, columns)
    except sqlite3.Error as error:
        raise _unreadable(path, error) from error
    missing = [name for name in REQUIRED if name not in columns.get("events", ())]
    if missing:
        raise StoreError(
            f"{path} looks like a recording of the Go implementation, but its table events has no column"
            f" {missing[0]}",
            hint="It was left as it is. Is it whole? Choose another file with --db.",
        )
    return GoDatabase(connection, path, columns, version)


def _columns(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """Plain tables only: a view under a table's name could compute anything."""
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    ).fetchall()
    found = "SELECT name FROM pragma_table_info(?)"
    return {
        str(name): frozenset(str(row[0]) for row in connection.execute(found, (name,))) for (name,) in tables
    }


def _version(connection: sqlite3.Connection, path: Path, columns: dict[str, frozenset[str]]) -> str:
    said = None
    if columns.get("schema_info", frozenset()) >= {"key", "value"}:
        row = connection.execute(
            "SELECT substr(value, 1, 20) FROM schema_info WHERE key = 'version' AND typeof(value) = 'text'"
        ).fetchone()
        said = _VERSION.fullmatch(row[0]) if row else None
    user_version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    number = (int(said[1]), int(said[2])) if said else _guessed(columns.get("events", frozenset()))
    if number > NEWEST or user_version > NEWEST[1]:
        shown = f"{number[0]}.{number[1]}" if number > NEWEST else str(user_version)
        raise StoreVersionError(
            f"{path} was written by a newer Go implementation (schema {shown}; the newest known is 0.10)",
            hint="It was left as it is. Upgrade ingero, or choose another file with --db.",
        )
    return f"{number[0]}.{number[1]}"


def _guessed(events: frozenset[str]) -> tuple[int, int]:
    return (0, 10) if "comm" in events else (0, 9) if "node" in events else (0, 8)


def _unreadable(path: Path, error: Exception) -> StoreError:
    if isinstance(error, sqlite3.Error) and opening.passing(error) is not None:
        return opening.opening_error(path, error)
    return StoreError(
        f"{path} looks like a recording of the Go implementation, but cannot be read: {error}",
        hint="It was left as it is. Is it damaged? Try `sqlite3 FILE .recover`.",
    )


# What the steps of one conversion share: the file read, the database written, what went wrong.


TEMPORARY = {
    "foreign_node": "(raw TEXT PRIMARY KEY, id INTEGER NOT NULL)",
    "foreign_op": "(source INTEGER, op INTEGER, id INTEGER NOT NULL, PRIMARY KEY (source, op))",
    "foreign_comm": "(raw TEXT PRIMARY KEY, id INTEGER NOT NULL)",
    "foreign_process": "(node_id INTEGER, pid INTEGER, id INTEGER NOT NULL, comm_id INTEGER,"
    " PRIMARY KEY (node_id, pid))",
}


@dataclass(frozen=True, slots=True)
class GoSession:
    """One session of the file, as a recording of ours."""

    id: int
    node_id: int
    started_ns: int
    last_ns: int
    cores: int | None
    pids: frozenset[int]  # named by the user: CUDA processes by the tool's own rule


@dataclass(slots=True)
class Conversion:
    go: GoDatabase
    out: sqlite3.Connection
    names: Names
    default_node: str
    node_ids: dict[str, int] = field(default_factory=dict)  # by the name in the file
    recordings: list[GoSession] = field(default_factory=list)
    process_ids: dict[tuple[int, int], int] = field(default_factory=dict)  # (node, pid)
    agents: set[tuple[int, int]] = field(default_factory=set)  # (node, pid) of the recording tool
    problems: Counter[str] = field(default_factory=Counter)  # reason of a loss: how many rows

    @property
    def nodes(self) -> list[int]:
        return sorted(set(self.node_ids.values()))

    def node_sql(self) -> str:
        """SQL for the node of a row of `events`: its column, else what its id begins with."""
        if len(self.node_ids) == 1:
            return "?1"  # the usual case, and far quicker
        prefix = "rtrim(substr(\"id\", 1, 300), '0123456789')"
        before = f"CASE typeof(\"id\") WHEN 'text' THEN NULLIF(rtrim({prefix}, ':'), '') END"
        return f"COALESCE({self.go.text('events', 'node', 300)}, {before}, ?1)"

    def ns_sql(self, column: str) -> str:
        """SQL for an instant or duration of `events` that can be one."""
        return self.go.between("events", column, 0, LATEST_NS if column == "timestamp" else LONGEST_NS)

    def pid_sql(self, column: str) -> str:
        """SQL for a PID or TID of `events`; 0 is nobody."""
        return self.go.between("events", column, 1, 2**32 - 1)

    def cgroup_sql(self) -> str:
        return self.go.between("events", "cgroup_id", 1, 2**63 - 1)

    def sole_node(self) -> int | None:
        """The node of what the file keeps without one; None where it has several."""
        nodes = self.nodes
        return nodes[0] if len(nodes) == 1 else None


def prepare(out: sqlite3.Connection) -> None:
    drop(out)
    for name, columns in TEMPORARY.items():
        out.execute(f"CREATE TEMP TABLE {name} {columns}")


def drop(out: sqlite3.Connection) -> None:
    for name in TEMPORARY:
        out.execute(f"DROP TABLE IF EXISTS temp.{name}")
