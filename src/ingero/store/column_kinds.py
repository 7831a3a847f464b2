"""What kind of value each column of a view holds: text, real or whole.

The tables behind the views say it of every column that is one of theirs; only columns
that a view computes are named here.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache

from ingero.store.schema import TABLES
from ingero.store.views import VIEWS, create_views

DECLARED = {"TEXT": "text", "REAL": "real", "INTEGER": "whole"}
COMPUTED = {
    "id": "text", "caller": "text", "direction": "text", "comm_hash": "text", "datatype": "text",
    "reduce_op": "text", "waker": "text", "uuid": "text", "reason_names": "text", "text": "text",
    "arg0": "whole", "wait_ns": "whole", "ns": "whole", "end_ns": "whole", "collecting": "whole",
    "gil": "whole", "kernel": "whole", "depth": "whole", "line": "whole", "duration_ns": "whole",
    "entered": "whole", "died": "whole", "job": "text", "container": "text",
}  # fmt: skip


@cache
def kinds_of(view: str) -> dict[str, str]:
    """By column, in the view's order. A column nobody gave a kind to is a KeyError."""
    return _kinds()[view]


@cache
def _kinds() -> dict[str, dict[str, str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in (*TABLES, *create_views()):
            connection.execute(statement)
        return {
            name: {
                column: COMPUTED.get(column) or DECLARED[declared]
                for _, column, declared, *_ in connection.execute(f"PRAGMA table_info({name})")
            }
            for name in VIEWS
        }
