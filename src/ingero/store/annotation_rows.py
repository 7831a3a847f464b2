"""What jobs say of themselves, as rows: a label ends where the next of its key begins."""

from __future__ import annotations

import re
import sqlite3

import numpy as np

from ingero.clock import Clock
from ingero.model.window import Annotation
from ingero.store.names import Names
from ingero.store.processes import Processes

_NUMBER = re.compile(r"-?[0-9]{1,18}")
_OPEN = (
    "SELECT value FROM annotation WHERE process_id = ? AND key_id = ? AND end_ns IS NULL AND recording_id = ?"
)
_CLOSE = (
    "UPDATE annotation SET end_ns = MAX(start_ns, ?)"
    " WHERE process_id = ? AND key_id = ? AND end_ns IS NULL AND recording_id = ?"
)
_INSERT = (
    "INSERT INTO annotation (node_id, recording_id, process_id, pid, key_id, value, number, start_ns, end_ns)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def save(
    connection: sqlite3.Connection,
    place: tuple[int, int],
    said: list[Annotation],
    clock: Clock,
    names: Names,
    processes: Processes,
) -> None:
    """In order of time. `place`: node and recording; labels an earlier one left open end with it."""
    if not said:
        return
    starts_ns = clock.wall_ns(np.array([each.at_ns for each in said], np.int64))
    pids = np.array([each.pid for each in said], np.int64)
    process_ids = processes.at(pids, starts_ns, create=True).tolist()
    lines: dict[tuple[int, int, int], list[tuple[int, str]]] = {}  # what one process said of one key
    for each, start_ns, process_id in zip(said, starts_ns.tolist(), process_ids, strict=True):
        lines.setdefault((process_id, each.pid, names.string(each.key)), []).append((start_ns, each.value))
    for (process_id, pid, key_id), line in lines.items():
        rows = _rows(connection, (process_id, key_id, place[1]), line)
        connection.executemany(_INSERT, [(*place, process_id, pid, key_id, *row) for row in rows])


def _rows(
    connection: sqlite3.Connection, open_one: tuple[int, int, int], line: list[tuple[int, str]]
) -> list[tuple[str, int | None, int, int | None]]:
    """Value, number, start and end of what is new; what was open ends where it begins."""
    before = connection.execute(_OPEN, open_one).fetchone()
    value = before[0] if before else ""
    changes = []
    for start_ns, said in line:
        if said != value:  # said again: it goes on
            changes.append((start_ns, said))
            value = said
    if before and changes:
        connection.execute(_CLOSE, (changes[0][0], *open_one))
    ends = [*(start_ns for start_ns, _ in changes[1:]), None]
    return [
        (said, int(said) if _NUMBER.fullmatch(said) else None, start_ns, end_ns)
        for (start_ns, said), end_ns in zip(changes, ends, strict=False)
        if said
    ]
