"""Whether a file is what it should be: tables that are tables, content that is whole, and nobody else
writing.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from ingero.errors import StoreError
from ingero.store.schema import TABLES
from ingero.store.views import VIEWS, create_views
from ingero.units import clean

# Tables that are tables and views that are ours, whoever made the file.
#
# What a file defines is run when it is read: a view under the name of a table, a column
# that is computed, or another view under the name of one of ours could take for ever.

_MADE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)")
TABLE_NAMES = frozenset({"migration", *(found[1] for found in map(_MADE.match, TABLES) if found)})
# What SQLite made of the file's schema; its text alone can be forged, but says the same of honest files.
_KINDS = "SELECT name, type FROM pragma_table_list WHERE schema = 'main'"
_KINDS_BY_TEXT = """
    SELECT name, CASE WHEN sql LIKE 'CREATE TABLE%' THEN 'table' END FROM main.sqlite_master
    WHERE type IN ('table', 'view')"""


def require_plain_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Raises where the name of one of our tables stands for something that has to be computed."""
    try:
        kinds = connection.execute(_KINDS).fetchall()
    except sqlite3.OperationalError:  # before SQLite 3.37
        kinds = connection.execute(_KINDS_BY_TEXT).fetchall()
    odd = {name.lower() for name, kind in kinds if kind != "table"} & TABLE_NAMES
    if not odd:
        odd = {name for name in TABLE_NAMES if _computes(connection, name)}
    if odd:
        raise StoreError(
            f"in {path} the table {min(odd)} is not a plain table",
            hint="ingero did not write it so, and reading it could take for ever. Choose another with --db.",
        )


def _computes(connection: sqlite3.Connection, table: str) -> bool:
    found = connection.execute("SELECT 1 FROM pragma_table_xinfo(?, 'main') WHERE hidden", (table,))
    return found.fetchone() is not None


def odd_views(connection: sqlite3.Connection, path: Path) -> list[str]:
    """Views that are not as this version writes them, so that a reader puts its own in their place.

    Usually none. An older version may have written one otherwise, and so may anybody.
    """
    stored = dict(connection.execute("SELECT name, sql FROM main.sqlite_master WHERE type = 'view'"))
    ours = dict(zip(VIEWS, create_views(), strict=True))
    odd = [name for name in VIEWS if stored.get(name) != ours[name]]
    for name in odd:
        _require_columns(connection, path, name)
    return odd


def _require_columns(connection: sqlite3.Connection, path: Path, name: str) -> None:
    """Prepared, not run: the tables have what the view needs."""
    try:
        connection.execute(f"EXPLAIN SELECT * FROM ({VIEWS[name]})").close()
    except sqlite3.Error as error:
        raise StoreError(
            f"{path} is of another version: its tables have not what {name} shows ({error})",
            hint="Let `ingero trace --db` of this version open it once, or merge it into a new one.",
        ) from error


# Whether a recording is what its schema says, asked only after something went wrong with it.
#
# SQLite takes a text for a number and bytes for a text, so a damaged file may open and be read, and
# fail in the middle of an answer. Then this tells a damaged file, which is an error of its own, from a
# mistake of ours, which keeps its traceback.


LOOK_S = 10.0
_STEPS = 100_000  # of SQLite's machine, between two looks at the clock
# What a column may hold, by how it is declared.
_HOLDS = {
    "INTEGER": ("integer", "null"),
    "REAL": ("real", "integer", "null"),
    "TEXT": ("text", "null"),
    "BLOB": ("blob", "null"),
}
# What an answer stumbles over where values are not what they should be.
STUMBLES = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)


def damage(connection: sqlite3.Connection) -> str:
    """What is wrong with the file; empty where nothing is found in reasonable time."""
    until = time.monotonic() + LOOK_S
    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    try:
        return _wrong_value(connection) or _wrong_pages(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        interrupted = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
        return "" if interrupted else str(error)
    finally:
        connection.set_progress_handler(None, 0)


def damaged(path: Path, why: object) -> StoreError:
    return StoreError(
        f"the database {path} is damaged: {why}",
        hint="It was left as it is. Try `sqlite3 FILE .recover`, or choose another with --db.",
    )


def _wrong_value(connection: sqlite3.Connection) -> str:
    for table in sorted(TABLE_NAMES):
        columns = connection.execute(f"PRAGMA main.table_info({table})").fetchall()
        for _, name, declared, *_ in columns:
            holds = _HOLDS.get(str(declared).upper())
            if holds is None:
                continue
            kinds = ", ".join(f"'{kind}'" for kind in holds)
            found = connection.execute(
                f'SELECT typeof("{name}") FROM main.{table} WHERE typeof("{name}") NOT IN ({kinds}) LIMIT 1'
            ).fetchone()
            if found:
                return f"{table}.{name} holds a value of type {found[0]}"
    return ""


def _wrong_pages(connection: sqlite3.Connection) -> str:
    found = str(connection.execute("PRAGMA main.quick_check(1)").fetchone()[0])
    return "" if found == "ok" else found


# What other programs did to a database that is being recorded into, as far as it can be told.
#
# The user a recording belongs to may open it with any program, and drop a table, add a
# trigger or cut a file beside it short. None of that may end the trace. SQLite maps the
# index of its log (-shm) into memory: touching it after somebody cut it short is a SIGBUS.
# So its length is looked at first and mended: SQLite makes an index of zeros anew from the
# log. Between the look and the use remain milliseconds of each second.


INDEX_BYTES = 32 << 10  # SQLite makes and maps it in parts of this size
ROOM_BYTES = 1 << 20  # more than it can have grown since the last look


class Meddling:
    """Watches one database for one connection that writes to it."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._index = path.with_name(path.name + "-shm")
        self._index_bytes = INDEX_BYTES
        self._version = self._data_version()

    def mend_index(self) -> str:
        """With the rights of whoever owns the folder. What is wrong where it cannot be mended."""
        with suppress(FileNotFoundError):
            size = self._index.stat(follow_symlinks=False).st_size
            if size >= self._index_bytes:
                self._index_bytes = size
                return ""
            try:
                fd = os.open(self._index, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError as error:
                return (
                    f"the index of the database's log was cut short, and cannot be mended: {error.strerror}"
                )
            with os.fdopen(fd, "r+b") as file:
                file.write(bytes(INDEX_BYTES))  # what is left of it would be believed
                file.truncate(self._index_bytes + ROOM_BYTES)
        return ""

    def blame(self, error: Exception) -> str:
        """What to tell of an error; empty where nobody else wrote: then it is a mistake of ours."""
        with suppress(sqlite3.Error):
            if self._data_version() == self._version:
                return ""
        return f"another program changed the database: {clean(str(error), 100)}"

    def _data_version(self) -> int:
        """Changes when another connection writes, and only then."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
