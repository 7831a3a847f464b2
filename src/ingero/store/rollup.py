"""Seconds added up to minutes, so that statistics over days stay quick.

Works on row numbers, not on time: what was written since the last roll-up is
merged into its minutes, in whatever order it came, also after a crash. Rows
above node.rolled_id are in no minute yet and readers add them themselves.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np

from ingero.model import histogram
from ingero.units import MINUTE

BATCH = 20_000  # rows merged per call: bounds the pause at a minute's turn

_NEW = (
    f"SELECT start_ns / {MINUTE} * {MINUTE}, node_id, COALESCE(process_id, 0), op_id, caller, pid, count,"
    " exact, count_error, sum_ns, min_ns, max_ns, bytes, errors, slots, id FROM operation_second"
    " WHERE node_id = ? AND id > ? ORDER BY id LIMIT ?"
)
_OLD = (
    "SELECT start_ns, node_id, process_id, op_id, caller, pid, count, exact, count_error, sum_ns, min_ns,"
    " max_ns, bytes, errors, slots FROM operation_minute"
    " WHERE start_ns = ? AND node_id = ? AND process_id = ? AND op_id = ? AND caller = ?"
)
_PUT = f"INSERT OR REPLACE INTO operation_minute VALUES ({', '.join('?' * 15)})"


def roll_up(connection: sqlite3.Connection, node_id: int) -> int:
    """Merge what is in no minute yet; returns how many rows. Part of the caller's transaction."""
    rolled = connection.execute("SELECT rolled_id FROM node WHERE id = ?", (node_id,)).fetchone()[0]
    rows = connection.execute(_NEW, (node_id, rolled, BATCH)).fetchall()
    if not rows:
        return 0
    groups: dict[tuple[int, ...], list[tuple[Any, ...]]] = {}
    for row in rows:
        groups.setdefault(row[:5], []).append(row)
    for key, members in groups.items():
        members.extend(connection.execute(_OLD, key))
    connection.executemany(_PUT, merged(groups))
    connection.execute("UPDATE node SET rolled_id = ? WHERE id = ?", (rows[-1][15], node_id))
    return len(rows)


def merged(groups: dict[tuple[int, ...], list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """One row of operation_minute for each key, from all rows that have it."""
    blobs = [row[14] for members in groups.values() for row in members]
    numbers = np.repeat(np.arange(len(groups)), [len(members) for members in groups.values()])
    slots = histogram.merge(blobs, numbers, len(groups))
    return [
        (*key, *_sums(members), histogram.encode(slots[at]))
        for at, (key, members) in enumerate(groups.items())
    ]


def _sums(members: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    pid, count, exact, error, sum_ns, low, high, sizes, errors = list(zip(*members, strict=False))[5:14]
    known = [size for size in sizes if size is not None]
    return (
        pid[0], sum(count), min(exact), sum(error), sum(sum_ns),
        min((v for v in low if v is not None), default=None),
        max((v for v in high if v is not None), default=None),
        sum(known) if known else None, sum(errors),
    )  # fmt: skip
