"""NCCL calls: what only they carry, and when the ranks of a collective arrived.

A round is one collective on one communicator. How long each rank waited for the
last follows from the round's row, so it must be updated with every call stored.
"""

from __future__ import annotations

import sqlite3

import numpy as np
from numpy.typing import NDArray

from ingero.clock import Clock
from ingero.model.layout import CallFlag
from ingero.model.window import Records
from ingero.store.columns import insert, ints, nullable
from ingero.store.names import OperationTable

_ARGUMENT = np.uint64(0xFFFFFFFF)  # an int argument leaves the upper half of its register undefined


def argument(calls: Records, position: NDArray[np.int64]) -> NDArray[np.int64]:
    """The int argument at each row's own position; -1 where it has none."""
    values = calls["args"][np.arange(len(calls)), np.maximum(position, 0)] & _ARGUMENT
    return np.where(position >= 0, values.astype(np.int64), -1)


def save(
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
