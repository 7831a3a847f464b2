"""SQL of users and assistants, which can read and nothing else.

The connection is already read-only; on top of that an authorizer allows reading
and nothing else, and rows, bytes, time and memory are bounded. Time is looked at
between steps of SQLite's machine, and one step may be a function that takes hours
over a megabyte of text: only sql_process.py, which runs this in a process that dies at its
limit, bounds that.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from ingero.errors import StoreError, UsageError
from ingero.store import opening
from ingero.units import format_bytes

HEAP_BYTES = 512 << 20
PROGRESS_STEPS = 2_000  # virtual machine steps between two looks at the time: some tens of microseconds

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 8 << 20,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_FUNCTIONS_DENIED = {
    "load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "eval", "zeroblob", "randomblob",
    "sqlite_compileoption_get", "sqlite_log",
}  # fmt: skip
_PRAGMAS_ALLOWED = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "function_list"}


@dataclass(frozen=True, slots=True)
class Limits:
    """What one statement may cost."""

    rows: int = 10_000
    bytes: int = 64 << 20
    seconds: float = 30.0
    temporary_bytes: int = 4 << 30  # of a file that a sort or a GROUP BY needs; less where the disk is small


@dataclass(frozen=True, slots=True)
class Rows:
    """The answer to one statement."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    truncated: bool  # there were more rows than the limit
    unweighted: bool = False  # it adds up rows that stand for several calls each as if for one


# Whose rows have a weight, and what adds rows up.
_WEIGHTED = {"events", "cuda_events", "calls"}
_ADDING = {"count", "sum", "total", "avg"}
_SAMPLED = "SELECT 1 FROM event WHERE weight > 1 LIMIT 1"


class _Asked:
    """What a statement reads: the authorizer is told, whatever way it is written."""

    def __init__(self) -> None:
        self._adds = self._weighs = self._reads = False

    def authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, inside: str | None
    ) -> int:
        """`inside`: the view or the named part of the statement it is done in."""
        name, from_view = (second or "").lower(), (inside or "").lower() in _WEIGHTED
        self._reads |= from_view
        if not from_view:  # its own doing: views of ours read every column they have
            self._adds |= action == sqlite3.SQLITE_FUNCTION and name in _ADDING
            self._weighs |= action == sqlite3.SQLITE_READ and name == "weight"
        return _authorize(action, first, second, database, inside)

    @property
    def unweighted(self) -> bool:
        return self._adds and self._reads and not self._weighs


def _authorize(
    action: int, first: str | None, second: str | None, _database: str | None, _by: str | None
) -> int:
    if action in _READING:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _FUNCTIONS_DENIED:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() in _PRAGMAS_ALLOWED:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def run(connection: sqlite3.Connection, sql: str, limits: Limits | None = None) -> Rows:
    """Run exactly one reading statement of somebody else's."""
    limits = limits or Limits()
    if not sql.strip(" \t\r\n;"):
        raise UsageError(
            "there is no SQL to run", hint="For example: ingero query 'SELECT * FROM operations LIMIT 10'"
        )
    deadline = time.monotonic() + limits.seconds
    asked = _Asked()
    with _guarded(connection, deadline, asked):
        try:
            found = _fetch(connection.execute(sql), limits)
            return replace(found, unweighted=asked.unweighted and _sampled(connection))
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            raise _explained(error, limits, time.monotonic() >= deadline) from error
        except MemoryError as error:
            raise _too_large("memory", HEAP_BYTES) from error


def tables_read(connection: sqlite3.Connection, sql: str) -> set[str]:
    """Tables and views that a statement reads, in lower case; it is prepared and not run."""
    found: set[str] = set()

    def authorize(
        action: int, first: str | None, second: str | None, database: str | None, inside: str | None
    ) -> int:
        if action == sqlite3.SQLITE_READ and first:
            found.add(first.lower())
        return _authorize(action, first, second, database, inside)

    connection.set_authorizer(authorize)
    try:
        explained = sql.lstrip().lower().startswith("explain")
        connection.execute(sql if explained else f"EXPLAIN {sql}").close()
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        raise _explained(error, Limits(), False) from error
    finally:
        connection.set_authorizer(None)
    return found


def _sampled(connection: sqlite3.Connection) -> bool:
    """Whether a row stands for more than one call; where that cannot be told in time nothing is said."""
    try:
        return connection.execute(_SAMPLED).fetchone() is not None
    except sqlite3.Error:
        return False


@contextmanager
def _guarded(connection: sqlite3.Connection, deadline: float, asked: _Asked) -> Iterator[None]:
    before = {limit: connection.setlimit(limit, value) for limit, value in _LIMITS.items()}
    # The heap limit holds for the process and can only become smaller; large sorts go to a file.
    connection.execute(f"PRAGMA hard_heap_limit = {HEAP_BYTES}")
    # The first use of one declares a table, which the authorizer would take for a change.
    for name in _PRAGMAS_ALLOWED:
        with suppress(sqlite3.OperationalError):  # table_list came with SQLite 3.37
            connection.execute(f"SELECT 1 FROM pragma_{name} LIMIT 0")
    connection.execute("SELECT 1 FROM json_each('[]') LIMIT 0")
    connection.set_authorizer(asked.authorize)
    connection.set_progress_handler(lambda: time.monotonic() >= deadline, PROGRESS_STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)
        for limit, value in before.items():
            connection.setlimit(limit, value)


def _fetch(cursor: sqlite3.Cursor, limits: Limits) -> Rows:
    columns = [column[0] for column in cursor.description or ()]
    if not columns:
        raise UsageError("the statement returns nothing", hint="Only SELECT, WITH and EXPLAIN can be run.")
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        size += sum(len(value) if isinstance(value, (str, bytes)) else 8 for value in row)
        if len(rows) == limits.rows or size > limits.bytes:
            cursor.close()
            return Rows(columns, rows, truncated=True)
        rows.append(row)
    return Rows(columns, rows, truncated=False)


NARROW = "Narrow it: a shorter time range, a LIMIT, fewer columns."
_READ_ONLY = "One SELECT, WITH or EXPLAIN over the views; see `ingero query --schema`."
_TEXTS = (
    ("not authorized", "only reading is allowed", _READ_ONLY),
    ("prohibited", "only reading is allowed", _READ_ONLY),
    ("cannot modify", "only reading is allowed", _READ_ONLY),
    ("one statement", "only one statement can be run at a time", "Run the statements one by one."),
    ("no such table", "", "`ingero query --schema` lists the views."),
    ("no such column", "", "`ingero query --schema` lists the columns of each view."),
)  # fmt: skip


def _spilled(error: sqlite3.Error) -> bool:
    """Whether a temporary file could not grow, or there were too many: nothing else is written."""
    whole = getattr(error, "sqlite_errorcode", 0)
    return whole in (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_FULL) or (
        opening.code_of(error) == sqlite3.SQLITE_CANTOPEN
    )


def too_long(limits: Limits) -> StoreError:
    return StoreError(f"the query took longer than {limits.seconds:g} s and was stopped", hint=NARROW)


def _too_large(what: str, limit_bytes: int) -> StoreError:
    return StoreError(f"the query needs more than {format_bytes(limit_bytes)} of {what}", hint=NARROW)


def _explained(error: Exception, limits: Limits, late: bool) -> StoreError | UsageError:
    text = str(error)
    if late and "interrupt" in text:
        return too_long(limits)
    if isinstance(error, sqlite3.Error) and opening.code_of(error) == sqlite3.SQLITE_NOMEM:
        return _too_large("memory", HEAP_BYTES)
    if isinstance(error, sqlite3.Error) and _spilled(error):
        return _too_large("temporary disk space", limits.temporary_bytes)
    if isinstance(error, sqlite3.Error) and opening.passing(error) is not None:
        return StoreError(f"cannot read the database: {text}", hint="Is it damaged or in use?")
    for part, said, hint in _TEXTS:
        if part in text:
            why = "" if part == "one statement" else f" ({text})"
            return UsageError(f"{said}{why}" if said else text, hint=hint)
    return UsageError(f"cannot run this SQL: {text}", hint="`ingero query --schema` lists views and columns.")
