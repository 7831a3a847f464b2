"""What some calls have beside their row: those that have not returned, collectives, and kernels named
later.
"""

from __future__ import annotations

import sqlite3
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from ingero.clock import Clock
from ingero.model.layout import CallFlag
from ingero.model.window import BUCKETS, InFlightFlag, Records, Window
from ingero.store.columns import insert, ints, lengths, nullable
from ingero.store.names import Names, OperationTable

# Calls that have not returned, as rows: the only trace that a job leaves which hangs.
#
# What returns leaves the table, for then it has a row among the calls. What never did
# stays, as it was last seen: its thread ended in it, the trace ended first, or the agent
# was killed. Rows of earlier recordings are theirs.

_PUT = (
    "INSERT INTO in_flight VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
    " bucket = excluded.bucket, bucket_ns = excluded.bucket_ns, syscall = excluded.syscall,"
    " before_attach = excluded.before_attach, last_seen_ns = excluded.last_seen_ns"
)
_RETURNED = (
    "DELETE FROM in_flight WHERE node_id = ? AND first_seen_ns >= ? AND last_seen_ns < ?"
    f" AND NOT before_attach & {int(InFlightFlag.DIED)}"
)


def known_in_flight(threads: Records) -> Records:
    """Rows that can be stored."""
    return threads[threads["open_bucket"] < BUCKETS]


def save_in_flight(
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


# NCCL calls: what only they carry, and when the ranks of a collective arrived.
#
# A round is one collective on one communicator. How long each rank waited for the
# last follows from the round's row, so it must be updated with every call stored.


_ARGUMENT = np.uint64(0xFFFFFFFF)  # an int argument leaves the upper half of its register undefined


def argument(calls: Records, position: NDArray[np.int64]) -> NDArray[np.int64]:
    """The int argument at each row's own position; -1 where it has none."""
    values = calls["args"][np.arange(len(calls)), np.maximum(position, 0)] & _ARGUMENT
    return np.where(position >= 0, values.astype(np.int64), -1)


def save_collectives(
    connection: sqlite3.Connection,
    clock: Clock,
    table: OperationTable,
    calls: Records,
    op_ids: NDArray[np.int64],
    ids: list[int],
) -> None:
    """Store the details of these calls, whose events have these ids."""
    op = calls["op"].astype(np.int64)
    comm_known = calls["flags"] & CallFlag.CALL_COMM_KNOWN != 0
    counted = calls["flags"] & CallFlag.CALL_COMM_JOINED == 0  # from its first: the same on all ranks
    numbered = comm_known & (calls["comm_hash"] != 0) & counted & table.numbered[op]
    datatype, reduce_op = argument(calls, table.dtype_arg[op]), argument(calls, table.reduce_arg[op])
    peer = argument(calls, table.peer_arg[op])
    insert(
        connection,
        "collective",
        {
            "event_id": ids,
            "comm_hash": nullable(calls["comm_hash"], comm_known & (calls["comm_hash"] != 0)),
            "seq": nullable(calls["seq"], numbered),
            "rank": nullable(calls["rank"], comm_known & (calls["rank"] >= 0)),
            "nranks": nullable(calls["nranks"], comm_known & (calls["nranks"] > 0)),
            "datatype": nullable(datatype, datatype >= 0),
            "reduce_op": nullable(reduce_op, reduce_op >= 0),
            "peer": nullable(peer, peer >= 0),
        },
    )
    together = numbered & (table.peer_arg[op] < 0) & (calls["rank"] >= 0) & (calls["nranks"] > 0)
    if together.any():
        _save_rounds(connection, clock, calls[together], op_ids[together])


def _save_rounds(
    connection: sqlite3.Connection, clock: Clock, calls: Records, op_ids: NDArray[np.int64]
) -> None:
    connection.executemany(
        "INSERT INTO collective_round VALUES (?, ?, ?, ?, 1, ?, ?)"
        " ON CONFLICT (comm_hash, seq, op_id) DO UPDATE SET seen = seen + 1,"
        " rank_sum = rank_sum + excluded.rank_sum, last_ns = MAX(last_ns, excluded.last_ns)",
        zip(
            ints(calls["comm_hash"]),
            ints(calls["seq"]),
            ints(op_ids),
            ints(calls["nranks"]),
            ints(calls["rank"]),
            ints(clock.wall_ns(calls["h"]["start_ns"])),
            strict=True,
        ),
    )


# Names of kernels for launches that were stored before the name was known.
#
# A trace that begins amid a job learns names from launches; those before them are the
# same kernels, as long as no name was given to the handle since.


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
