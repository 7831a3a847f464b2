"""What other programs did to a database that is being recorded into, as far as it can be told.

The user a recording belongs to may open it with any program, and drop a table, add a
trigger or cut a file beside it short. None of that may end the trace. SQLite maps the
index of its log (-shm) into memory: touching it after somebody cut it short is a SIGBUS.
So its length is looked at first and mended: SQLite makes an index of zeros anew from the
log. Between the look and the use remain milliseconds of each second.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from ingero.units import clean

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
