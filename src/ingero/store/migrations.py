"""How a database came to its present shape: named steps, each applied once.

The names applied are kept in the database itself, each written in the same
transaction as its step, so an interrupted upgrade goes on where it stopped.
A name this version does not know means a newer one wrote the file: refused.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ingero import __version__
from ingero.errors import StoreVersionError
from ingero.store.opening import not_ours
from ingero.store.schema import (
    ANNOTATION,
    BUCKET_ROWS,
    CLOCKS,
    GOVERNOR,
    ON_CORE,
    SWITCHES,
    TABLES,
    TENANTS,
)
from ingero.store.soundness import require_plain_tables
from ingero.store.views import TENANT_VIEWS, VIEWS, create_views

APPLICATION_ID = 0x494E4752  # "INGR", shown by file(1)


@dataclass(frozen=True, slots=True)
class Migration:
    name: str
    apply: Callable[[sqlite3.Connection], None]


def table_names() -> frozenset[str]:
    """Tables and views of the newest schema."""
    found = (re.match(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", statement) for statement in TABLES)
    return frozenset({match[1] for match in found if match} | set(VIEWS))


def _first_schema(connection: sqlite3.Connection) -> None:
    for statement in (*TABLES, *create_views()):
        connection.execute(statement)
    connection.executemany("INSERT INTO bucket VALUES (?, ?)", BUCKET_ROWS)
    connection.execute("INSERT INTO meta VALUES ('created_by', ?)", (f"ingero {__version__}",))


def _annotations(connection: sqlite3.Connection) -> None:
    """A new database has them from its first schema."""
    for statement in (*ANNOTATION, f"CREATE VIEW IF NOT EXISTS annotations AS {VIEWS['annotations']}"):
        connection.execute(statement)


def _governor(connection: sqlite3.Connection) -> None:
    """A new database has it from its first schema."""
    views = ("overhead", "governor_actions", "thread_estimates")
    for statement in (*GOVERNOR, *(f"CREATE VIEW IF NOT EXISTS {name} AS {VIEWS[name]}" for name in views)):
        connection.execute(statement)


def _gpus(connection: sqlite3.Connection) -> None:
    """A new database has them already; one of before gets the tables and what shows them."""
    for statement in TABLES:
        if statement.startswith("CREATE TABLE gpu"):
            connection.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
    for name, select in VIEWS.items():
        if name.startswith("gpu"):
            connection.execute(f"CREATE VIEW IF NOT EXISTS {name} AS {select}")


def _add_column(connection: sqlite3.Connection, table: str, column: str, kind: str) -> None:
    """A new database has the column from its first schema."""
    found = connection.execute("SELECT 1 FROM pragma_table_info(?) WHERE name = ?", (table, column))
    if not found.fetchone():
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")


def _cpus(connection: sqlite3.Connection) -> None:
    _add_column(connection, "process", "cpus", "TEXT")


def _on_core(connection: sqlite3.Connection) -> None:
    """What a recording of before has no word on stays NULL."""
    for column in ON_CORE:
        _add_column(connection, "thread_second", column, "INTEGER")


def _unfinished(connection: sqlite3.Connection) -> None:
    """A new database has the view from its first schema."""
    connection.execute(f"CREATE VIEW IF NOT EXISTS unfinished_calls AS {VIEWS['unfinished_calls']}")


def _collective_weight(connection: sqlite3.Connection) -> None:
    """A row of nccl_events says, as one of the other views does, how many calls it stands for."""
    connection.execute("DROP VIEW IF EXISTS nccl_events")
    connection.execute(f"CREATE VIEW nccl_events AS {VIEWS['nccl_events']}")


def _own_cost(connection: sqlite3.Connection) -> None:
    """A new database has it from its first schema."""
    for statement in (*SWITCHES, f"CREATE VIEW IF NOT EXISTS own_cost AS {VIEWS['own_cost']}"):
        connection.execute(statement)


def _tenants(connection: sqlite3.Connection) -> None:
    """A new database has them from its first schema."""
    views = (f"CREATE VIEW IF NOT EXISTS {name} AS {VIEWS[name]}" for name in TENANT_VIEWS)
    for statement in (*TENANTS, *views):
        connection.execute(statement)


def _clock_offsets(connection: sqlite3.Connection) -> None:
    """A new database has them from its first schema."""
    view = f"CREATE VIEW IF NOT EXISTS clock_offsets AS {VIEWS['clock_offsets']}"
    for statement in (*CLOCKS, view):
        connection.execute(statement)


ALL: tuple[Migration, ...] = (
    Migration("0001-first-schema", _first_schema),
    Migration("0002-annotations", _annotations),
    Migration("0003-governor", _governor),
    Migration("0004-gpus", _gpus),
    Migration("0005-cpus", _cpus),
    Migration("0006-on-core", _on_core),
    Migration("0007-unfinished-calls", _unfinished),
    Migration("0008-collective-weight", _collective_weight),
    Migration("0009-own-cost", _own_cost),
    Migration("0013-tenants", _tenants),
    Migration("0011-clock-offsets", _clock_offsets),
)


def applied_names(connection: sqlite3.Connection, path: Path) -> list[str]:
    """The steps this database has seen; empty for a new file. Raises for files of others."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application == APPLICATION_ID:
        require_plain_tables(connection, path)
        return [row[0] for row in connection.execute("SELECT name FROM migration ORDER BY number")]
    if application or connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
        raise not_ours(path)
    return []


def refuse_newer(names: Sequence[str], path: Path, known: Sequence[Migration] = ALL) -> None:
    unknown = [name for name in names if name not in {m.name for m in known}]
    if unknown:
        raise StoreVersionError(
            f"{path} was written by a newer ingero (its schema has {unknown[-1]!r})",
            hint="Upgrade ingero on this machine, or choose another database with --db.",
        )


def upgrade(connection: sqlite3.Connection, path: Path, steps: Sequence[Migration] = ALL) -> list[str]:
    """Apply what is missing; returns the names applied now."""
    names = applied_names(connection, path)
    refuse_newer(names, path, steps)
    missing = [step for step in steps if step.name not in names]
    for step in missing:
        _apply(connection, step, len(steps))
    return [step.name for step in missing]


def _apply(connection: sqlite3.Connection, step: Migration, version: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migration"
            " (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, applied_ns INTEGER NOT NULL)"
        )
        seen = connection.execute("SELECT 1 FROM migration WHERE name = ?", (step.name,)).fetchone()
        if seen is None:  # another process may have been first
            step.apply(connection)
            connection.execute(
                "INSERT INTO migration (name, applied_ns) VALUES (?, ?)", (step.name, time.time_ns())
            )
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
