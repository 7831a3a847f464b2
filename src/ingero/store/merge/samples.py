"""Samples in the order of their time, as a trace writes them: readers find a stretch by its ends."""

from __future__ import annotations

import sqlite3

_COLUMNS = "node_id, start_ns, process_id, pid, tid, stack_hash, bucket, op_id, flags, count"
_OUT_OF_ORDER = """
    SELECT 1 FROM main.thread_sample a JOIN main.thread_sample b ON b.id = a.id + 1
    WHERE b.start_ns < a.start_ns LIMIT 1"""


def put_in_order(out: sqlite3.Connection) -> None:
    """Rows of several nodes, or of recordings added later, came one after the other."""
    if out.execute(_OUT_OF_ORDER).fetchone() is None:
        return
    out.execute("BEGIN")
    out.execute(
        f"CREATE TEMP TABLE sorted AS SELECT {_COLUMNS} FROM main.thread_sample ORDER BY start_ns, id"
    )
    out.execute("DELETE FROM main.thread_sample")
    out.execute(
        f"INSERT INTO main.thread_sample ({_COLUMNS}) SELECT {_COLUMNS} FROM temp.sorted ORDER BY rowid"
    )
    out.execute("DROP TABLE temp.sorted")
    out.execute("COMMIT")
