"""Calls that have not returned, as rows: the only trace that a job leaves which hangs.

What returns leaves the table, for then it has a row among the calls. What never did
stays, as it was last seen: its thread ended in it, the trace ended first, or the agent
was killed. Rows of earlier recordings are theirs.
"""

from __future__ import annotations

import sqlite3
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from ingero.clock import Clock
from ingero.model.window import BUCKETS, InFlightFlag, Records
from ingero.store.columns import ints, lengths, nullable
from ingero.store.names import Names, OperationTable

_PUT = (
    "INSERT INTO in_flight VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
    " bucket = excluded.bucket, bucket_ns = excluded.bucket_ns, syscall = excluded.syscall,"
    " before_attach = excluded.before_attach, last_seen_ns = excluded.last_seen_ns"
)
_RETURNED = (
    "DELETE FROM in_flight WHERE node_id = ? AND first_seen_ns >= ? AND last_seen_ns < ?"
    f" AND NOT before_attach & {int(InFlightFlag.DIED)}"
)


def known(threads: Records) -> Records:
    """Rows that can be stored."""
    return threads[threads["open_bucket"] < BUCKETS]


def save(
    connection: sqlite3.Connection,
    node_id: int,
    clock: Clock,
    names: Names,
    table: OperationTable,
    threads: Records,
    process_ids: NDArray[np.int64],
    end_ns: int,
) -> None:
    """Within the caller's transaction; `process_ids` are of each of these threads."""
    calling = (threads["call_start_ns"] > 0) & table.known(threads["call_op"])
    since = np.where(calling, threads["call_start_ns"], threads["now_ns"] - threads["open_ns"])
    op = np.where(calling, table.ids(names)[np.where(calling, threads["call_op"], 0)], 0)
    dead, syscall = threads["dead"] > 0, threads["syscall"]
    # Seen until the window ended, or the thread did.
    seen_ns = np.where(dead, clock.wall_ns(threads["now_ns"]), end_ns)
    flags = threads["before_attach"] | np.where(dead, int(InFlightFlag.DIED), 0)
    connection.executemany(
        _PUT,
        zip(
            repeat(node_id),
            ints(threads["h"]["tid"]),
            ints(clock.wall_ns(since)),
            ints(op),
            ints(process_ids),
            ints(threads["h"]["pid"]),
            ints(names.comms(threads["h"]["comm"], threads["h"]["pid"])),
            ints(threads["open_bucket"]),
            lengths(threads["open_ns"]),
            nullable(syscall, syscall >= 0),
            ints(flags),
            ints(seen_ns),
            ints(seen_ns),
            strict=False,
        ),
    )


def drop_returned(connection: sqlite3.Connection, node_id: int, recording_id: int, end_ns: int) -> None:
    """What was in flight in this recording and is not any more."""
    (started_ns,) = connection.execute(
        "SELECT started_ns FROM recording WHERE id = ?", (recording_id,)
    ).fetchone()
    connection.execute(_RETURNED, (node_id, started_ns, end_ns))
