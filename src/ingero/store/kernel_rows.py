"""Names of kernels for launches that were stored before the name was known.

A trace that begins amid a job learns names from launches; those before them are the
same kernels, as long as no name was given to the handle since.
"""

from __future__ import annotations

import sqlite3

import numpy as np

from ingero.model.window import Window
from ingero.store.names import Names, OperationTable

MAX_ROWS_BACK = 500_000  # a fifth of a second to look through
SIGN = 1 << 63


def fill_in(
    connection: sqlite3.Connection, names: Names, table: OperationTable, window: Window, ids: tuple[int, int]
) -> None:
    """`ids`: first and end of this recording's events."""
    connection.execute(
        "CREATE TEMP TABLE IF NOT EXISTS learnt"
        " (pid INTEGER, handle INTEGER, kernel_id INTEGER, PRIMARY KEY (pid, handle)) WITHOUT ROWID"
    )
    connection.execute("DELETE FROM temp.learnt")
    connection.executemany(
        "INSERT OR REPLACE INTO temp.learnt VALUES (?, ?, ?)",
        [(each.pid, (each.handle ^ SIGN) - SIGN, names.kernel(each.name)) for each in window.kernels_learnt],
    )
    first, end = max(ids[0], ids[1] - MAX_ROWS_BACK), ids[1]
    op_ids = table.ids(names)
    for argument in (0, 1):
        launches = ", ".join(map(str, op_ids[np.flatnonzero(table.kernel_arg == argument)].tolist()))
        same = (
            f"SELECT kernel_id FROM temp.learnt l WHERE l.pid = event.pid AND l.handle = event.arg{argument}"
        )
        connection.execute(
            f"UPDATE event SET kernel_id = ({same}) WHERE id >= ? AND id < ? AND op_id IN ({launches})"
            " AND (kernel_id IS NULL OR kernel_id IN (SELECT id FROM kernel WHERE NOT known))"
            f" AND EXISTS ({same})",
            (first, end),
        )
