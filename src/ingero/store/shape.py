"""Tables that are tables and views that are ours, whoever made the file.

What a file defines is run when it is read: a view under the name of a table, a column
that is computed, or another view under the name of one of ours could take for ever.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from ingero.errors import StoreError
from ingero.store.schema import TABLES
from ingero.store.views import VIEWS, create_views

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
