"""A merged database read as if it held one node only.

Views of the connection's own, named like the tables and views they stand before,
show that node's rows; so every question asks about it, written or not with nodes in
mind. Nothing in the file changes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from pathlib import Path

from ingero.errors import TargetError
from ingero.store.views import VIEWS
from ingero.units import clean


def views_of_node(
    connection: sqlite3.Connection, path: Path, node: str, odd: Collection[str] = ()
) -> list[str]:
    """Statements after which a connection sees this node alone.

    `odd` are views of the file that already have one of the connection's own before them.
    """
    found = connection.execute("SELECT id FROM node WHERE name = ?", (node,)).fetchone()
    if found is None:
        names = [
            clean(row[0], 60) for row in connection.execute("SELECT name FROM node ORDER BY name LIMIT 20")
        ]
        raise TargetError(
            f"there is no node {clean(node, 60)!r} in {path}", hint=f"It has {', '.join(names)}."
        )
    statements = [f"DROP VIEW temp.{name}" for name in odd]
    seen = {name: VIEWS[name] for name in odd}
    for name, condition in _conditions(connection, int(found[0]), node):
        whole = f"({VIEWS[name]})" if name in odd else f'main."{name}"'
        seen[name] = f"SELECT * FROM {whole} WHERE {condition}"
    return statements + [f'CREATE TEMP VIEW "{name}" AS {select}' for name, select in seen.items()]


def _conditions(connection: sqlite3.Connection, node_id: int, node: str) -> list[tuple[str, str]]:
    quoted = node.replace("'", "''")
    tables = [
        row[0] for row in connection.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")
    ]
    found = [("node", f"id = {node_id}")]
    for name in (*tables, *VIEWS):
        columns = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))}
        if "node_id" in columns:
            found.append((name, f"node_id = {node_id}"))
        elif "node" in columns:
            found.append((name, f"node = '{quoted}'"))
        elif name in VIEWS and "id" in columns:  # gpu-node-01:4821
            found.append((name, f"rtrim(id, '0123456789') = '{quoted}:'"))
    return found
