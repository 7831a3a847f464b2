"""What the steps of one conversion share: the file read, the database written, what went wrong."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field

from ingero.store.foreign.source import LATEST_NS, LONGEST_NS, GoDatabase
from ingero.store.names import Names

TEMPORARY = {
    "foreign_node": "(raw TEXT PRIMARY KEY, id INTEGER NOT NULL)",
    "foreign_op": "(source INTEGER, op INTEGER, id INTEGER NOT NULL, PRIMARY KEY (source, op))",
    "foreign_comm": "(raw TEXT PRIMARY KEY, id INTEGER NOT NULL)",
    "foreign_process": "(node_id INTEGER, pid INTEGER, id INTEGER NOT NULL, comm_id INTEGER,"
    " PRIMARY KEY (node_id, pid))",
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """One session of the file, as a recording of ours."""

    id: int
    node_id: int
    started_ns: int
    last_ns: int
    cores: int | None
    pids: frozenset[int]  # named by the user: CUDA processes by the tool's own rule


@dataclass(slots=True)
class Work:
    go: GoDatabase
    out: sqlite3.Connection
    names: Names
    default_node: str
    node_ids: dict[str, int] = field(default_factory=dict)  # by the name in the file
    recordings: list[Recorded] = field(default_factory=list)
    process_ids: dict[tuple[int, int], int] = field(default_factory=dict)  # (node, pid)
    agents: set[tuple[int, int]] = field(default_factory=set)  # (node, pid) of the recording tool
    problems: Counter[str] = field(default_factory=Counter)  # reason of a loss: how many rows

    @property
    def nodes(self) -> list[int]:
        return sorted(set(self.node_ids.values()))

    def node_sql(self) -> str:
        """SQL for the node of a row of `events`: its column, else what its id begins with."""
        if len(self.node_ids) == 1:
            return "?1"  # the usual case, and far quicker
        prefix = "rtrim(substr(\"id\", 1, 300), '0123456789')"
        before = f"CASE typeof(\"id\") WHEN 'text' THEN NULLIF(rtrim({prefix}, ':'), '') END"
        return f"COALESCE({self.go.text('events', 'node', 300)}, {before}, ?1)"

    def ns_sql(self, column: str) -> str:
        """SQL for an instant or duration of `events` that can be one."""
        return self.go.between("events", column, 0, LATEST_NS if column == "timestamp" else LONGEST_NS)

    def pid_sql(self, column: str) -> str:
        """SQL for a PID or TID of `events`; 0 is nobody."""
        return self.go.between("events", column, 1, 2**32 - 1)

    def cgroup_sql(self) -> str:
        return self.go.between("events", "cgroup_id", 1, 2**63 - 1)

    def sole_node(self) -> int | None:
        """The node of what the file keeps without one; None where it has several."""
        nodes = self.nodes
        return nodes[0] if len(nodes) == 1 else None


def prepare(out: sqlite3.Connection) -> None:
    drop(out)
    for name, columns in TEMPORARY.items():
        out.execute(f"CREATE TEMP TABLE {name} {columns}")


def drop(out: sqlite3.Connection) -> None:
    for name in TEMPORARY:
        out.execute(f"DROP TABLE IF EXISTS temp.{name}")
