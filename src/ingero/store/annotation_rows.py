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
    "INSERT INTO annotation (node_id, recording_id, process_id, pid, key_id, value, number, start_ns)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
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
    node_id, recording_id = place
    starts_ns = clock.wall_ns(np.array([each.at_ns for each in said], np.int64))
    pids = np.array([each.pid for each in said], np.int64)
    rows = zip(said, starts_ns.tolist(), processes.at(pids, starts_ns, create=True).tolist(), strict=True)
    for each, start_ns, process_id in rows:
        key_id = names.string(each.key)
        open_one = (process_id, key_id, recording_id)
        if (each.value,) in connection.execute(_OPEN, open_one).fetchall():
            continue  # said again: it goes on
        connection.execute(_CLOSE, (start_ns, *open_one))
        if each.value:
            number = int(each.value) if _NUMBER.fullmatch(each.value) else None
            values = (node_id, recording_id, process_id, each.pid, key_id, each.value, number, start_ns)
            connection.execute(_INSERT, values)
