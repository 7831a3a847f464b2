"""Whole tables, row by row, for archives and other programs: what `ingero export` writes.

The views scripts rely on, as `ingero query --schema` describes them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingero.errors import UsageError
from ingero.serve.answers.query import Range
from ingero.serve.answers.schema import VIEWS
from ingero.serve.answers.whose import EVERYBODY, Whose, require_pids
from ingero.serve.answers.window import time_range
from ingero.store import opening
from ingero.store.column_kinds import kinds_of
from ingero.store.location import last_path
from ingero.store.reader import Reader

FETCH = 10_000
COLUMNS = {view.name: tuple(view.columns) for view in VIEWS}
# Which column says when, where a row has an instant; findings and losses last.
_BEGINS = ("timestamp", "timestamp_ns", "bucket_start_ns", "first_ns", "start_ns")
_ENDS = {
    "findings": "last_ns",
    "losses": "end_ns",
    "annotations": "end_ns",
    "processes": "COALESCE(end_ns, ?1)",
}


@dataclass(frozen=True)
class WantedRows:
    """Which rows: all of them unless something is given."""

    db: Path | None
    when: Range = field(default_factory=Range)
    pid: int | None = None
    node: str | None = None
    whose: Whose = EVERYBODY


def require_table(name: str) -> str:
    if name not in COLUMNS:
        raise UsageError(f"there is no table {name!r}", hint=f"There are {', '.join(COLUMNS)}.")
    return name


def column_kinds(name: str) -> dict[str, str]:
    """text, real or whole, by column."""
    return kinds_of(require_table(name))


@contextmanager
def open_tables(wanted: WantedRows) -> Iterator[ExportTables]:
    with Reader(wanted.db or last_path(), wanted.node) as reader:
        yield ExportTables(reader, wanted)


class ExportTables:
    """The tables of one database."""

    def __init__(self, reader: Reader, wanted: WantedRows) -> None:
        self._reader, self._wanted = reader, wanted
        when = wanted.when
        self._pids = None if wanted.pid is None else frozenset({wanted.pid})
        if wanted.whose:
            theirs = require_pids(reader, wanted.whose)
            self._pids = theirs if self._pids is None else theirs & self._pids
        self._range = None if when == Range() else time_range(reader, when.since, when.start, when.end)

    def rows(self, name: str) -> Iterator[tuple[Any, ...]]:
        """In the order they are stored."""
        columns = COLUMNS[require_table(name)]
        where, parameters = self._where(name, columns)
        try:
            cursor = self._reader.connection.execute(
                f"SELECT {', '.join(columns)} FROM {name}{where}", parameters
            )
            while rows := cursor.fetchmany(FETCH):
                yield from rows
        except sqlite3.Error as error:
            raise opening.opening_error(self._reader.path, error) from error

    def _where(self, name: str, columns: tuple[str, ...]) -> tuple[str, tuple[int, ...]]:
        parts: list[str] = []
        parameters: tuple[int, ...] = ()
        begin = next((column for column in _BEGINS if column in columns), None)
        if self._range is not None and begin is not None:
            parts.append(f"{_ENDS.get(name, begin)} >= ?2 AND {begin} < ?1")
            parameters = (self._range.to_ns, self._range.from_ns)
        if self._pids is not None and "pid" in columns:
            parts.append(f"pid IN ({', '.join(map(str, sorted(self._pids)))})")
        return (f" WHERE {' AND '.join(parts)}" if parts else ""), parameters
