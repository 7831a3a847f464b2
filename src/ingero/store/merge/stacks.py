"""Stacks: each once, told apart by what is in them."""

from __future__ import annotations

import hashlib
import sqlite3

_FRAME = ("kind", "function", "file", "line", "module")


def stacks(out: sqlite3.Connection) -> bool:
    """Each stack once. Whether some got another hash: two tools may give one hash to two stacks."""
    same = " AND ".join(f"m.{name} IS s.{name}" for name in _FRAME)
    clashing = out.execute(
        "SELECT stack_hash FROM (SELECT stack_hash, COUNT(*) AS frames FROM src.stack_frame GROUP BY 1) h"
        " WHERE EXISTS (SELECT 1 FROM main.stack_frame m WHERE m.stack_hash = h.stack_hash) AND (frames <>"
        " (SELECT COUNT(*) FROM main.stack_frame m WHERE m.stack_hash = h.stack_hash) OR frames <>"
        " (SELECT COUNT(*) FROM src.stack_frame s JOIN main.stack_frame m ON m.stack_hash = s.stack_hash"
        f" AND m.depth = s.depth AND {same} WHERE s.stack_hash = h.stack_hash))"
    ).fetchall()
    for (old,) in clashing:
        _rename_stack(out, old)
    listed = ", ".join(("stack_hash", "depth", *_FRAME))
    out.execute(
        f"INSERT OR IGNORE INTO main.stack_frame ({listed}) SELECT {listed} FROM src.stack_frame"
        " WHERE stack_hash NOT IN (SELECT old FROM temp.stack_map)"
    )
    return bool(clashing)


def _rename_stack(out: sqlite3.Connection, old: int) -> None:
    frames = out.execute(
        f"SELECT depth, {', '.join(_FRAME)} FROM src.stack_frame WHERE stack_hash = ? ORDER BY depth", (old,)
    ).fetchall()
    digest = hashlib.blake2b(repr((old, frames)).encode(), digest_size=8).digest()
    new = int.from_bytes(digest, "little", signed=True)
    marks = ", ".join("?" * (2 + len(_FRAME)))
    # The same stack from a third input has the same new hash.
    out.executemany(
        f"INSERT OR IGNORE INTO main.stack_frame VALUES ({marks})", [(new, *row) for row in frames]
    )
    out.execute("INSERT INTO temp.stack_map VALUES (?, ?)", (old, new))
