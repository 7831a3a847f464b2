"""Arrays turned into columns SQLite takes: whole columns at once, NULL where unknown."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = Iterable[Any]
Columns = Mapping[str, Column]


def ints(values: NDArray[Any]) -> list[int]:
    """Python integers; 64-bit patterns from 2**63 up (handles, hashes) become negative, as SQLite has it."""
    result: list[int] = values.astype(np.int64).tolist()
    return result


def lengths(values: NDArray[Any]) -> list[int]:
    """Durations and counts: never negative, whatever a record holds."""
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(2**63 - 1))
    return ints(values)


def nullable(values: NDArray[Any], known: NDArray[np.bool_]) -> Column:
    """Integers, None where not known."""
    if not known.any():
        return repeat(None)
    if known.all():
        return ints(values)
    objects = values.astype(np.int64).astype(object)
    objects[~known] = None
    result: list[int | None] = objects.tolist()
    return result


_statements: dict[tuple[str, str, tuple[str, ...]], str] = {}


def insert(connection: sqlite3.Connection, table: str, columns: Columns, verb: str = "INSERT") -> None:
    """Insert the rows these columns make up; at least one column must be finite."""
    key = (verb, table, tuple(columns))
    statement = _statements.get(key)
    if statement is None:
        marks = ", ".join("?" * len(columns))
        statement = _statements[key] = f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({marks})"
    connection.executemany(statement, zip(*columns.values(), strict=False))
