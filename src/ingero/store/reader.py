"""A database opened for reading only, whoever wrote it and wherever it lies.

The file may come from anybody: its schema is not trusted, broken text is replaced
rather than raised, and nothing is ever written, not even beside it.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from ingero.errors import StoreError
from ingero.model.facts import Facts
from ingero.store import migrations, trouble
from ingero.store.facts import FactReader
from ingero.store.schema import NODE_SHIFT
from ingero.store.views import VIEWS

BUSY_S = 5.0
_PRAGMAS = (
    "query_only = ON",
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "mmap_size = 0",
    "cache_size = -32000",
)


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
    """Asks one database."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.connection = _open(self.path)

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of one of our own queries."""
        try:
            return self.connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise trouble.opening_error(self.path, error) from error

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
            raise trouble.opening_error(self.path, error) from error
        except (TypeError, ValueError, OverflowError) as error:  # SQLite takes text for a number
            raise StoreError(
                f"{self.path} holds values that make no sense: {error}", hint="The file is damaged."
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
        self.close()


def _open(path: Path) -> sqlite3.Connection:
    _require_readable(path)
    try:
        return _connect(path, "mode=ro")
    except sqlite3.OperationalError as error:
        if path.with_name(path.name + "-wal").exists():
            raise trouble.opening_error(path, error) from error
    try:  # a read-only directory: SQLite cannot make its index of the log there, and there is no log
        return _connect(path, "mode=ro&immutable=1")
    except sqlite3.OperationalError as error:
        raise trouble.opening_error(path, error) from error


def _require_readable(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreError(
            f"there is no database at {path}",
            hint="Record one with `sudo ingero trace`, or name another with --db.",
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise StoreError(f"cannot read {path}: {why}", hint="Name another database with --db.") from error
    if stat.S_ISDIR(mode):
        raise StoreError(f"{path} is a directory, not a database", hint="Name the file with --db.")
    if not stat.S_ISREG(mode):
        raise StoreError(f"{path} is not a plain file", hint="Name another database with --db.")
    if not os.access(path, os.R_OK):
        raise StoreError(
            f"the database {path} may not be read by this user",
            hint="It belongs to whoever recorded it: ask as that user, with sudo, or name another with --db.",
        )


def _connect(path: Path, how: str) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path.absolute()))}?{how}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        _require_ours(connection, path)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            raise trouble.opening_error(path, error) from error
        raise
    return connection


def _require_ours(connection: sqlite3.Connection, path: Path) -> None:
    names = migrations.applied_names(connection, path)
    migrations.refuse_newer(names, path)
    views = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'")}
    missing = set(VIEWS) - views
    if not names:
        raise StoreError(f"{path} is empty", hint="Record into it with `sudo ingero trace`.")
    if missing:
        raise StoreError(
            f"{path} is of an older version: it has no {sorted(missing)[0]}",
            hint="Let `ingero trace --db` of this version open it once, or merge it into a new one.",
        )
