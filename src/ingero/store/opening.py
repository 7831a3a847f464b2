"""A SQLite file opened for reading only, whoever wrote it and wherever it lies.

Its schema is not trusted, broken text is replaced rather than raised, and nothing
is ever written, not even beside it. Whether it is a recording is not asked here.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable
from pathlib import Path

from ingero import rights
from ingero.errors import StoreBusyError, StoreError, StoreFullError, StoreVersionError
from ingero.store import location

BUSY_S = 5.0
_PRAGMAS = (
    "query_only = ON",
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "mmap_size = 0",
    "cache_size = -32000",
)


def open_read_only(path: Path) -> sqlite3.Connection:
    """Any SQLite file, whoever made it; nothing is written, not even beside it."""
    return _open(path)[0]


def read_only_uri(path: Path) -> str:
    """What ATTACH takes, to read the same file beside another."""
    connection, uri = _open(path)
    connection.close()
    return uri


def _open(path: Path) -> tuple[sqlite3.Connection, str]:
    _require_readable(path)
    who = rights.whose(path.absolute().parent)
    # SQLite makes an index beside a log that has none. A file that is not the user's own is read as before.
    with rights.acting_as(who if who and path.stat().st_uid == who.uid else None):
        return _open_either(path)


def _open_either(path: Path) -> tuple[sqlite3.Connection, str]:
    try:
        return _connect(path, "mode=ro")
    except sqlite3.OperationalError as error:
        if path.with_name(path.name + "-wal").exists():
            raise opening_error(path, error) from error
    return _without_a_log(path)  # a read-only directory: SQLite cannot make its index of the log there


def open_as_it_lies(path: Path) -> sqlite3.Connection:
    """To look at a file that was just closed: where it has no log, none is left beside it."""
    return open_read_only(path) if path.with_name(path.name + "-wal").exists() else _without_a_log(path)[0]


def _without_a_log(path: Path) -> tuple[sqlite3.Connection, str]:
    try:
        return _connect(path, "mode=ro&immutable=1")
    except sqlite3.OperationalError as error:
        raise opening_error(path, error) from error


def _require_readable(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        services = f" The service's is {location.SERVICES}." if os.access(location.SERVICES, os.R_OK) else ""
        raise StoreError(
            f"there is no database at {path}",
            hint=f"Record one with `sudo ingero trace`, or name another with --db.{services}",
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


def _connect(path: Path, how: str) -> tuple[sqlite3.Connection, str]:
    uri = location.uri(path, how)
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        set_up(connection)
        connection.execute("SELECT COUNT(*) FROM sqlite_master")  # only now is the file looked at
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            raise opening_error(path, error) from error
        if isinstance(error, UnicodeDecodeError):  # SQLite quotes the file in its message
            raise StoreError(
                f"the database {path} is damaged: its schema cannot be read", hint="Choose another with --db."
            ) from error
        raise
    return connection, uri


def add_private_views(connection: sqlite3.Connection, statements: Iterable[str]) -> None:
    """Views of the connection's own; nothing in the file changes."""
    connection.execute("PRAGMA query_only = OFF")
    for statement in statements:
        connection.execute(statement)
    connection.execute("PRAGMA query_only = ON")


def set_up(connection: sqlite3.Connection) -> None:
    """What every connection for reading has, also one to a converted copy."""
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


# What went wrong with SQLite, in words a user can act on.
#
# Trouble of the surroundings (full, locked, read-only) must not stop a trace:
# `passing` tells it from mistakes of ours, which keep their traceback.


_PASSING = {
    sqlite3.SQLITE_FULL: "no space left for the database",
    sqlite3.SQLITE_BUSY: "the database is locked by another program",
    sqlite3.SQLITE_LOCKED: "the database is locked by another program",
    sqlite3.SQLITE_READONLY: "the database cannot be written (read-only)",
    sqlite3.SQLITE_IOERR: "the disk below the database reports an error",
    sqlite3.SQLITE_CANTOPEN: "the database can no longer be opened",
    sqlite3.SQLITE_CORRUPT: "the database is damaged",
    sqlite3.SQLITE_NOTADB: "the database is damaged",
    sqlite3.SQLITE_PERM: "the database may not be written",
    sqlite3.SQLITE_NOMEM: "no memory left for the database",
}


def code_of(error: sqlite3.Error) -> int:
    """SQLite's primary result code, 0 where the error is Python's own."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def passing(error: sqlite3.Error) -> str | None:
    """What to show while it lasts, or None for a mistake of ours."""
    return _PASSING.get(code_of(error))


def opening_error(path: Path, error: sqlite3.Error) -> StoreError:
    """The error for a database that cannot be opened."""
    code = code_of(error)
    if code == sqlite3.SQLITE_NOTADB:
        return not_ours(path)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusyError(
            f"the database {path} is locked by another program",
            hint="Close it there, or choose another with --db.",
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreFullError(
            f"no space left for the database {path}", hint="Free some, or choose another with --db."
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return StoreError(
            f"the database {path} is damaged: {error}",
            hint="It was left as it is. Try `sqlite3 FILE .recover`, or record into another with --db.",
        )
    return StoreError(f"cannot open the database {path}: {error}", hint="Check the path and its permissions.")


def not_ours(path: Path) -> StoreVersionError:
    return StoreVersionError(
        f"{path} is not an ingero database", hint="It was left as it is. Choose another file with --db."
    )
