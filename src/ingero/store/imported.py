"""Recordings of the Go implementation, opened as if they were ours.

The file is converted into a private database of our schema, in memory or, for a
large file, in a temporary file that SQLite removes when it is closed; so every
reading command works on it unchanged, and the file itself is only ever read.

What such a recording can prove is little, and it is not stretched: see
foreign/accounting.py for what a switch is taken for, foreign/recordings.py for what was
not watched (`meta` key `not_watched:ID`, ID the recording's number).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ingero.store import migrations, opening
from ingero.store.foreign.convert import convert_database
from ingero.store.foreign.source import open_source, recognised
from ingero.store.opening import open_read_only

MEMORY_BYTES = 64 << 20  # of the source; a guarded query may use 512 MiB, the database included

__all__ = ["convert", "open_imported", "recognised"]


def open_imported(connection: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """A database of our schema with everything `connection`, open on `path` for reading, has."""
    source = open_source(connection, path)
    place = ":memory:" if path.stat().st_size <= MEMORY_BYTES else ""  # "": a temporary file of its own
    out = sqlite3.connect(place, isolation_level=None, check_same_thread=False)
    try:
        out.execute("PRAGMA trusted_schema = OFF")
        migrations.upgrade(out, path)
        convert_database(source, out)
    except sqlite3.Error as error:
        out.close()
        raise opening.opening_error(path, error) from error
    except BaseException:
        out.close()
        raise
    return out


def convert(source: Path, connection: sqlite3.Connection, node: str | None = None) -> bool:
    """Add a recording of the Go implementation to a database of our schema.

    `node` names what the file gives no node. False: it had been added before.
    """
    opened = open_read_only(source)
    try:
        return convert_database(open_source(opened, source), connection, node)
    finally:
        opened.close()
