"""Whether a recording is what its schema says, asked only after something went wrong with it.

SQLite takes a text for a number and bytes for a text, so a damaged file may open and be read, and
fail in the middle of an answer. Then this tells a damaged file, which is an error of its own, from a
mistake of ours, which keeps its traceback.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from ingero.errors import StoreError
from ingero.store.shape import TABLE_NAMES

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
