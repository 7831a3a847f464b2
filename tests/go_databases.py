"""Databases as the Go implementation writes them, small and made to order.

Tables and columns follow its schemas 0.8, 0.9 and 0.10 (which also sets
`PRAGMA user_version` 10); a test adds the rows it is about and nothing else.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from ingero.serve.answers.operations import OperationStats, operation_stats
from ingero.serve.answers.window import time_range
from ingero.store.reader import Reader

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
START_NS = 1_775_000_040 * SECOND  # a whole minute
NODE = "gpu-node-07"

_EVENTS = (
    "timestamp INTEGER NOT NULL, pid INTEGER NOT NULL, tid INTEGER NOT NULL, source INTEGER NOT NULL,"
    " op INTEGER NOT NULL, duration INTEGER NOT NULL, gpu_id INTEGER NOT NULL DEFAULT 0,"
    " arg0 INTEGER NOT NULL DEFAULT 0, arg1 INTEGER NOT NULL DEFAULT 0,"
    " ret_code INTEGER NOT NULL DEFAULT 0, stack_hash INTEGER NOT NULL DEFAULT 0"
)
_RANKS = ", node TEXT NOT NULL DEFAULT '', rank INTEGER, local_rank INTEGER, world_size INTEGER"
_LATER = ", stack_ips TEXT NOT NULL DEFAULT '', cgroup_id INTEGER NOT NULL DEFAULT 0"
_SESSIONS = (
    "id INTEGER PRIMARY KEY AUTOINCREMENT, started_at INTEGER NOT NULL,"
    " stopped_at INTEGER NOT NULL DEFAULT 0, gpu_model TEXT NOT NULL DEFAULT '',"
    " gpu_driver TEXT NOT NULL DEFAULT '', cpu_model TEXT NOT NULL DEFAULT '',"
    " cpu_cores INTEGER NOT NULL DEFAULT 0, mem_total INTEGER NOT NULL DEFAULT 0,"
    " kernel TEXT NOT NULL DEFAULT '', os_release TEXT NOT NULL DEFAULT '',"
    " cuda_ver TEXT NOT NULL DEFAULT '', python_ver TEXT NOT NULL DEFAULT '',"
    " ingero_ver TEXT NOT NULL DEFAULT '', pid_filter TEXT NOT NULL DEFAULT '',"
    " flags TEXT NOT NULL DEFAULT ''"
)
_AGGREGATES = (
    "bucket INTEGER NOT NULL, source INTEGER NOT NULL, op INTEGER NOT NULL, pid INTEGER NOT NULL DEFAULT 0,"
    " count INTEGER NOT NULL DEFAULT 0, stored INTEGER NOT NULL DEFAULT 0,"
    " sum_dur INTEGER NOT NULL DEFAULT 0, min_dur INTEGER NOT NULL DEFAULT 0,"
    " max_dur INTEGER NOT NULL DEFAULT 0, sum_arg0 INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (bucket, source, op, pid)"
)
_COMMON = {
    "stack_traces": "hash INTEGER PRIMARY KEY, ips TEXT NOT NULL, frames TEXT NOT NULL DEFAULT ''",
    "sources": "id INTEGER PRIMARY KEY, name TEXT NOT NULL, description TEXT NOT NULL",
    "ops": "source_id INTEGER NOT NULL, op_id INTEGER NOT NULL, name TEXT NOT NULL,"
    " description TEXT NOT NULL, PRIMARY KEY (source_id, op_id)",
    "schema_info": "key TEXT PRIMARY KEY, value TEXT NOT NULL",
    "system_snapshots": "id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER NOT NULL UNIQUE,"
    " cpu_pct REAL NOT NULL, mem_pct REAL NOT NULL, mem_avail INTEGER NOT NULL, swap_mb INTEGER NOT NULL,"
    " load_avg REAL NOT NULL",
    "process_names": "pid INTEGER NOT NULL, name TEXT NOT NULL, seen_at INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (pid)",
    "event_aggregates": _AGGREGATES,
    "cgroup_metadata": "cgroup_id INTEGER PRIMARY KEY, container_id TEXT NOT NULL DEFAULT '',"
    " cgroup_path TEXT NOT NULL DEFAULT '', pod_name TEXT NOT NULL DEFAULT '',"
    " namespace TEXT NOT NULL DEFAULT ''",
    "cgroup_schedstat": "cgroup_id INTEGER NOT NULL, p99_off_cpu INTEGER NOT NULL,"
    " total_off_cpu INTEGER NOT NULL, event_count INTEGER NOT NULL,"
    " window_start INTEGER NOT NULL DEFAULT 0, window_end INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (cgroup_id, window_end)",
}
_CHAINS = (
    "id TEXT PRIMARY KEY, detected_at INTEGER NOT NULL, severity TEXT NOT NULL, summary TEXT NOT NULL,"
    " root_cause TEXT NOT NULL, explanation TEXT NOT NULL, recommendations TEXT NOT NULL DEFAULT '',"
    " cuda_op TEXT NOT NULL DEFAULT '', cuda_p99_us INTEGER NOT NULL DEFAULT 0,"
    " cuda_p50_us INTEGER NOT NULL DEFAULT 0, tail_ratio REAL NOT NULL DEFAULT 0,"
    " timeline TEXT NOT NULL DEFAULT ''"
)
_TENTH = {
    "event_aggregates_5s": _AGGREGATES,
    "annotations": "id INTEGER PRIMARY KEY, timestamp INTEGER NOT NULL, labels TEXT NOT NULL, pid INTEGER,"
    " start_time INTEGER, span_start INTEGER, span_end INTEGER, peer_uid INTEGER, peer_gid INTEGER,"
    " peer_pid INTEGER",
    "schema_version": "version INTEGER",
}
VERSIONS = ("0.8", "0.9", "0.10")


def tables(version: str) -> dict[str, str]:
    """Every table of a version, with its columns."""
    number = VERSIONS.index(version)
    identity = "id TEXT PRIMARY KEY, " if number else "id INTEGER PRIMARY KEY AUTOINCREMENT, "
    events = identity + _EVENTS + (_RANKS if number else "") + _LATER
    found = {
        "events": events + (", comm TEXT NOT NULL DEFAULT ''" if number == 2 else ""),
        "sessions": _SESSIONS + (_RANKS if number else ""),
        "causal_chains": _CHAINS + (", node TEXT NOT NULL DEFAULT ''" if number else ""),
    }
    return found | _COMMON | (_TENTH if number == 2 else {})


def column_names(version: str, table: str) -> list[str]:
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE {table} ({tables(version)[table]})")
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


class GoRecording:
    """Writes one such file; instants are given from the start of the recording."""

    def __init__(self, path: Path, version: str = "0.9", node: str = NODE, **changed: str | None) -> None:
        self.path, self.version, self.node = path, version, node
        self.connection = sqlite3.connect(path, isolation_level=None)
        self._next = 1
        for name, columns in (tables(version) | changed).items():
            if columns is not None:
                self.connection.execute(f"CREATE TABLE {name} ({columns})")
        if version == "0.10":
            self.connection.execute("PRAGMA user_version = 10")
        if "schema_info" not in changed:
            self.insert("schema_info", key="version", value=version)

    def insert(self, table: str, **values: Any) -> None:
        marks = ", ".join("?" * len(values))
        self.connection.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values())
        )

    def session(self, seconds: float = 10.0, **values: Any) -> GoRecording:
        stopped = START_NS + round(seconds * SECOND)
        named = {} if self.version == "0.8" else {"node": self.node}
        self.insert(
            "sessions", **({"started_at": START_NS, "stopped_at": stopped, "cpu_cores": 8} | named | values)
        )
        return self

    def event(self, source: int, op: int, at_ns: int, took_ns: int = 0, **values: Any) -> GoRecording:
        """A row as stored: `at_ns` is what the tool writes as timestamp."""
        number, self._next = self._next, self._next + 1
        row: dict[str, Any] = {"pid": 100, "timestamp": START_NS + at_ns, "duration": took_ns}
        row |= {"source": source, "op": op, "id": number}
        if self.version != "0.8":
            row |= {"id": f"{self.node}:{number}", "node": self.node}
        row |= values
        row.setdefault("tid", row["pid"])
        self.insert("events", **row)
        return self

    def call(self, op: int, at_ns: int, took_ns: int, source: int = 1, **values: Any) -> GoRecording:
        """Library calls are stored with their begin."""
        return self.event(source, op, at_ns, took_ns, **values)

    def away(self, at_ns: int, took_ns: int, pid: int = 100) -> GoRecording:
        """Off the core from `at_ns` on; switches are stored with their end."""
        return self.event(3, 1, at_ns + took_ns, took_ns, pid=pid, arg1=pid, cgroup_id=1)

    def block(self, op: int, at_ns: int, took_ns: int, **values: Any) -> GoRecording:
        """A block request issued at `at_ns`; stored with its end."""
        return self.event(5, op, at_ns + took_ns, took_ns, **values)

    def aggregate(self, source: int, op: int, count: int, stored: int, **values: Any) -> GoRecording:
        row = {"bucket": START_NS, "source": source, "op": op, "pid": 100, "count": count, "stored": stored}
        self.insert("event_aggregates", **(row | values))
        return self

    def close(self) -> Path:
        self.connection.close()
        return self.path


def ask(path: Path, sql: str) -> list[dict[str, Any]]:
    """Rows of a file of the Go implementation, asked as every reading command asks."""
    with Reader(path) as reader:
        cursor = reader.connection.execute(sql)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def time_of(path: Path, tid: int = 100) -> dict[str, int]:
    rows = ask(path, f"SELECT bucket, SUM(ns) AS ns FROM thread_time WHERE tid = {tid} GROUP BY bucket")
    return {row["bucket"]: row["ns"] for row in rows}


def losses(path: Path) -> dict[str, int]:
    return {row["reason"]: row["count"] for row in ask(path, "SELECT reason, count FROM losses")}


def statistics(path: Path) -> dict[str, OperationStats]:
    """What `ingero query` shows, by operation."""
    with Reader(path) as reader:
        return {each.op: each for each in operation_stats(reader, time_range(reader)).operations}
