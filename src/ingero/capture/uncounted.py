"""Calls the kernel could not count, because it had no memory for new counters just then.

Many new operations at once outrun the kernel's stock of memory, which is
refilled a moment later. Such a call has a record instead, and is counted from it.
"""

from __future__ import annotations

import numpy as np

from ingero.model import histogram
from ingero.model.layout import CallFlag, Why
from ingero.model.window import OPERATION, Records

SUMS = ("count", "sum_ns", "bytes", "errors", "recorded", "dropped", "split", "slots")


def with_uncounted(operations: Records, calls: Records) -> Records:
    """The window's operations, and in them the calls known only from their records."""
    extra = calls[(calls["why"] & Why.WHY_UNCOUNTED) > 0]
    if not len(extra):
        return operations
    rows = {_key(row): row.copy() for row in operations}
    for call in extra:
        row = _as_row(call)
        known = rows.get(_key(row))
        rows[_key(row)] = row if known is None else _added(known, row)
    return np.array(list(rows.values()), OPERATION)


def _key(row: np.void) -> tuple[int, int, int]:
    return int(row["pid"]), int(row["op"]), int(row["caller"])


def _as_row(call: np.void) -> np.void:
    row: np.void = np.zeros(1, OPERATION)[0]
    flags = int(call["flags"])
    runtime, direct = flags & CallFlag.CALL_FROM_RUNTIME, flags & CallFlag.CALL_DIRECT
    took_ns = call["duration_ns"]
    row["pid"], row["op"] = call["h"]["pid"], call["op"]
    row["caller"] = 1 if runtime else 2 if direct else 0
    row["count"] = row["recorded"] = 1
    row["sum_ns"] = row["min_ns"] = row["max_ns"] = took_ns
    row["errors"] = bool(int(call["why"]) & Why.WHY_ERROR)
    row["bytes"] = 0 if flags & CallFlag.CALL_NO_BYTES or row["errors"] else call["bytes"]
    row["split"] = call["split"]
    row["slots"][histogram.slot_of([took_ns])[0]] = 1
    return row


def _added(known: np.void, row: np.void) -> np.void:
    for name in SUMS:
        known[name] += row[name]
    known["min_ns"] = min(known["min_ns"], row["min_ns"])
    known["max_ns"] = max(known["max_ns"], row["max_ns"])
    return known
