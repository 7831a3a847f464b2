"""Findings as rows: the same finding seen again updates its row and keeps its id."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import astuple, dataclass, fields

from ingero.store.event_rows import Ids


@dataclass(frozen=True, slots=True)
class FindingRow:
    """One finding; instants are Unix-epoch nanoseconds. `key` says which findings are the same one."""

    key: str
    kind: str
    severity: str
    title: str
    first_ns: int
    last_ns: int
    json: str
    confidence: float | None = None
    pid: int | None = None
    tid: int | None = None
    op: str | None = None
    excess_ns: int | None = None
    wall_share: float | None = None
    explained_share: float | None = None
    source_file: str | None = None
    source_line: int | None = None
    source_function: str | None = None


@dataclass(frozen=True, slots=True)
class FindingChanges:
    """Findings that are new or told again, and keys of those that are taken back."""

    told: Collection[FindingRow] = ()
    withdrawn: Collection[str] = ()


NO_CHANGES = FindingChanges()
_NAMES = tuple(field.name for field in fields(FindingRow))
_UPDATES = ", ".join(f"{name} = excluded.{name}" for name in _NAMES if name not in ("key", "first_ns"))
_PUT = (
    f"INSERT INTO finding (id, node_id, {', '.join(_NAMES)}) VALUES ({', '.join('?' * (len(_NAMES) + 2))})"
    f" ON CONFLICT (node_id, key) DO UPDATE SET {_UPDATES}, first_ns = MIN(first_ns, excluded.first_ns)"
)


def save(connection: sqlite3.Connection, node_id: int, ids: Ids, changes: FindingChanges) -> None:
    """Store findings within the caller's transaction."""
    for key in changes.withdrawn:
        connection.execute("DELETE FROM finding WHERE node_id = ? AND key = ?", (node_id, key))
    for row in changes.told:
        connection.execute(_PUT, (ids.take(1)[0], node_id, *astuple(row)))


def told(
    connection: sqlite3.Connection,
    node_id: int,
    recording_id: int,
    kinds: Iterable[str],
    span: tuple[int, int],
) -> list[tuple[str, int, int]]:
    """The JSON of findings of a recording that touch a stretch of time, and from when to when they held."""
    wanted = sorted(kinds)
    marks = ", ".join("?" * len(wanted))
    return connection.execute(
        "SELECT CAST(json AS TEXT), CAST(first_ns AS INTEGER), CAST(last_ns AS INTEGER) FROM finding"
        f" WHERE node_id = ? AND key GLOB ? AND kind IN ({marks}) AND last_ns >= ? AND first_ns < ?"
        " ORDER BY id LIMIT 1000",
        (node_id, f"{recording_id}:*", *wanted, *span),
    ).fetchall()
