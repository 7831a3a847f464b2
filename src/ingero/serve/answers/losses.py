"""What is missing from a recording, by reason."""

from __future__ import annotations

from ingero.model.report import Loss
from ingero.store.reader import Reader

# What could not be stored at the end lies after the last window that was.
_END = "SELECT MAX(ended_ns) FROM recording WHERE last_ns >= ? AND last_ns < ?"


def losses_within(reader: Reader, from_ns: int, to_ns: int) -> list[Loss]:
    """Every reason with its count, most first."""
    to_ns = max(to_ns, (reader.rows(_END, (from_ns, to_ns))[0][0] or 0) + 1)
    rows = reader.rows(
        "SELECT reason, SUM(count), MIN(start_ns), MAX(end_ns) FROM losses"
        " WHERE end_ns > ? AND start_ns < ? GROUP BY reason ORDER BY 2 DESC",
        (from_ns, to_ns),
    )
    return [Loss(str(reason), int(count), int(first), int(last)) for reason, count, first, last in rows]
