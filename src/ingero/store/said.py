"""The steps a process said itself, by labels, read from the database."""

from __future__ import annotations

import sqlite3

import numpy as np

from ingero.model.facts import Marks

STEP_LABEL = "step"  # the key by which jobs say their steps
MOST = 200_000
_SAID = """
    FROM annotation WHERE node_id = ? AND start_ns >= ? AND start_ns < ? AND pid = ?
        AND key_id = (SELECT id FROM string WHERE text = ?) AND TYPEOF(number) = 'integer'"""


def read_said(connection: sqlite3.Connection, span: tuple[int, int, int], pid: int) -> Marks:
    """`span`: node, from and to. Of very many labels evenly spread ones: numbers tell what lies between."""
    asked = (*span, pid, STEP_LABEL)
    every = connection.execute(f"SELECT COUNT(*) {_SAID}", asked).fetchone()[0] // MOST + 1
    sql = f"SELECT CAST(start_ns AS INTEGER), number {_SAID} AND id % {every} = 0 ORDER BY 1, id"
    return np.array(connection.execute(sql, asked).fetchall(), np.int64).reshape(-1, 2)
