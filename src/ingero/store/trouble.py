"""What went wrong with SQLite, in words a user can act on.

Trouble of the surroundings (full, locked, read-only) must not stop a trace:
`passing` tells it from mistakes of ours, which keep their traceback.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ingero.errors import StoreBusyError, StoreError, StoreFullError, StoreVersionError

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
