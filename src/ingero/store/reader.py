"""A database opened for reading only, whoever wrote it and wherever it lies.

The file may come from anybody: its schema is not trusted, broken text is replaced
rather than raised, and nothing is ever written, not even beside it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from ingero.errors import StoreError, TargetError
from ingero.model.facts import Facts
from ingero.store import imported, migrations, opening
from ingero.store.facts import FactReader
from ingero.store.opening import add_private_views, open_read_only, set_up
from ingero.store.schema import LATER, NODE_SHIFT
from ingero.store.soundness import STUMBLES, damage, damaged, odd_views
from ingero.store.views import LATER_VIEWS, VIEWS
from ingero.units import clean


@dataclass(frozen=True, slots=True)
class RecordingInfo:
    """One run of the agent; instants are Unix-epoch nanoseconds."""

    id: int
    node_id: int
    node: str
    version: str | None
    command: str | None
    cores: int | None
    started_ns: int
    last_ns: int
    ended_ns: int | None


class Reader:
    """Asks one database; of several nodes only one where it is named."""

    def __init__(self, path: Path | str, node: str | None = None) -> None:
        self.path = Path(path)
        self.connection, self.imported = _open(self.path)
        self.private_views: list[str] = []  # what the connection sees in place of what the file has
        try:
            self._see(_empty_tables(self.connection))
            odd = odd_views(self.connection, self.path)
            self._see([f"CREATE TEMP VIEW {name} AS {VIEWS[name]}" for name in odd])
            if node is not None:
                self._see(views_of_node(self.connection, self.path, node, odd))
        except BaseException as error:
            self.connection.close()
            if isinstance(error, sqlite3.Error):
                raise opening.opening_error(self.path, error) from error
            if isinstance(error, UnicodeDecodeError):  # SQLite quotes the file in its message
                raise damaged(self.path, "its schema cannot be read") from error
            raise

    def _see(self, statements: list[str]) -> None:
        add_private_views(self.connection, statements)
        self.private_views += statements

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of one of our own queries."""
        try:
            return self.connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise opening.opening_error(self.path, error) from error
        except OverflowError as error:  # computed from what the file has
            raise damaged(self.path, "a number in it is out of range") from error

    @contextmanager
    def trouble_told(self) -> Iterator[None]:
        """Whatever is asked in here: a damaged file is an error of its own, not of ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise opening.opening_error(self.path, error) from error

    def nodes(self) -> list[str]:
        """Those that recorded, by name."""
        return sorted({recording.node for recording in self.recordings()})

    def recordings(self) -> list[RecordingInfo]:
        """Oldest first."""
        found = self.rows(
            "SELECT r.id, n.id, n.name, r.version, r.command, r.cores, r.started_ns, r.last_ns, r.ended_ns"
            " FROM recording r JOIN node n ON n.id = r.node_id ORDER BY r.started_ns, r.id"
        )
        return [RecordingInfo(*row) for row in found]

    def facts(self, recording: RecordingInfo, from_ns: int, to_ns: int) -> Facts:
        """What a recording says about a stretch of time, for the diagnosis."""
        try:
            facts = FactReader(self.connection, recording.node_id, recording.started_ns)
            return facts.read(max(from_ns, recording.started_ns), min(to_ns, recording.last_ns))
        except sqlite3.Error as error:
            raise opening.opening_error(self.path, error) from error
        except (TypeError, ValueError, OverflowError) as error:  # SQLite takes text for a number
            raise StoreError(
                f"{self.path} holds values that cannot be right: {error}", hint="The file is damaged."
            ) from error

    def id_ranges(self, from_ns: int, to_ns: int) -> list[tuple[int, int]]:
        """Which `event.id` ranges hold the detail of this time: far quicker than filtering by time."""
        found = self.rows(
            "SELECT node_id, MIN(first_id), MAX(last_id) FROM window WHERE end_ns > ? AND start_ns < ?"
            " GROUP BY recording_id, node_id ORDER BY 2",
            (from_ns, to_ns),
        )
        return [(first, last) for _, first, last in found if last >= first]

    def event_id(self, text: str) -> int | None:
        """The number behind an id such as `gpu-node-01:4821`."""
        node, _, seq = text.rpartition(":")
        found = self.rows("SELECT id FROM node WHERE name = ?", (node,))
        return (found[0][0] << NODE_SHIFT) + int(seq) if found and seq.isdecimal() else None

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, sqlite3.Error):
                raise opening.opening_error(self.path, error) from error
            if isinstance(error, STUMBLES) and (why := damage(self.connection)):
                raise damaged(self.path, why) from error
        finally:
            self.close()


def _open(path: Path) -> tuple[sqlite3.Connection, bool]:
    """And whether it is a converted copy."""
    connection = open_read_only(path)
    try:
        converted = imported.recognised(connection)
        if converted:
            source, connection = connection, imported.open_imported(connection, path)
            source.close()
            set_up(connection)
        _require_ours(connection, path)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise opening.opening_error(path, error) from error
        if isinstance(error, UnicodeDecodeError):
            raise damaged(path, "its schema cannot be read") from error
        raise
    return connection, converted


def _empty_tables(connection: sqlite3.Connection) -> list[str]:
    """What an older version did not record, as tables without rows."""
    known = {row[0] for row in connection.execute("SELECT name FROM main.sqlite_master")}
    return [
        f"CREATE TEMP VIEW {name} AS SELECT {', '.join(f'NULL AS {column}' for column in columns)} WHERE 0"
        for name, columns in LATER.items()
        if name not in known
    ]


def _require_ours(connection: sqlite3.Connection, path: Path) -> None:
    names = migrations.applied_names(connection, path)
    migrations.refuse_newer(names, path)
    views = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'")}
    missing = set(VIEWS) - LATER_VIEWS - views
    if not names:
        raise StoreError(f"{path} is empty", hint="Record into it with `sudo ingero trace`.")
    if missing:
        raise StoreError(
            f"{path} is of an older version: it has no {sorted(missing)[0]}",
            hint="Let `ingero trace --db` of this version open it once, or merge it into a new one.",
        )


# A merged database read as if it held one node only.
#
# Views of the connection's own, named like the tables and views they stand before,
# show that node's rows; so every question asks about it, written or not with nodes in
# mind. Nothing in the file changes.


def views_of_node(
    connection: sqlite3.Connection, path: Path, node: str, odd: Collection[str] = ()
) -> list[str]:
    """Statements after which a connection sees this node alone.

    `odd` are views of the file that already have one of the connection's own before them.
    """
    found = connection.execute("SELECT id FROM node WHERE name = ?", (node,)).fetchone()
    if found is None:
        names = [
            clean(row[0], 60) for row in connection.execute("SELECT name FROM node ORDER BY name LIMIT 20")
        ]
        raise TargetError(
            f"there is no node {clean(node, 60)!r} in {path}", hint=f"It has {', '.join(names)}."
        )
    statements = [f"DROP VIEW temp.{name}" for name in odd]
    seen = {name: VIEWS[name] for name in odd}
    for name, condition in _conditions(connection, int(found[0]), node):
        whole = f"({VIEWS[name]})" if name in odd else f'main."{name}"'
        seen[name] = f"SELECT * FROM {whole} WHERE {condition}"
    return statements + [f'CREATE TEMP VIEW "{name}" AS {select}' for name, select in seen.items()]


def _conditions(connection: sqlite3.Connection, node_id: int, node: str) -> list[tuple[str, str]]:
    quoted = node.replace("'", "''")
    tables = [
        row[0] for row in connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")
    ]
    found = [("node", f"id = {node_id}")]
    for name in (*tables, *VIEWS):
        columns = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))}
        if "node_id" in columns:
            found.append((name, f"node_id = {node_id}"))
        elif "node" in columns:
            found.append((name, f"node = '{quoted}'"))
        elif name in VIEWS and "id" in columns:  # gpu-node-01:4821
            found.append((name, f"rtrim(id, '0123456789') = '{quoted}:'"))
    return found
