"""Rows of the machine: its GPUs, their samples and who is on them, and what tracing cost on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ingero.clock import Clock
from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample
from ingero.model.window import Window
from ingero.store.columns import insert
from ingero.store.names import Names
from ingero.store.processes import Processes
from ingero.units import clean

# Cards, their samples and who is on them, as rows: columns have the names of the values' fields.

_SAMPLE = tuple(field.name for field in fields(GpuSample))
_CARD = tuple(field.name for field in fields(GpuCard))
_LAST = ", ".join(f"{name} = excluded.{name}" for name in _CARD if name not in ("gpu_id", "uuid"))
_TEXTS = ("name", "uuid", "bus_id", "driver", "compute_mode")


@dataclass(slots=True)
class GpuRows:
    """Writes what a window knows of cards, within the open transaction."""

    connection: sqlite3.Connection
    node_id: int
    clock: Clock
    names: Names
    processes: Processes

    def save(self, news: GpuNews, end_ns: int) -> None:
        for card in news.cards:
            self._card(card, end_ns)
        if news.samples:
            self._samples(news.samples)
        if news.processes:
            self._processes(news.processes)

    def _card(self, card: GpuCard, at_ns: int) -> None:
        row = {name: getattr(card, name) for name in _CARD}
        row |= {name: clean(row[name], 128) if row[name] is not None else None for name in _TEXTS}
        row |= {"uuid": row["uuid"] or "", "unsupported": "; ".join(card.unsupported) or None}
        marks = ", ".join("?" * (len(row) + 3))
        self.connection.execute(
            f"INSERT INTO gpu (node_id, first_ns, last_ns, {', '.join(row)}) VALUES ({marks})"
            f" ON CONFLICT DO UPDATE SET {_LAST}, last_ns = MAX(last_ns, excluded.last_ns)",
            (self.node_id, at_ns, at_ns, *row.values()),
        )

    def _samples(self, samples: Sequence[GpuSample]) -> None:
        columns = {name: [getattr(each, name) for each in samples] for name in _SAMPLE}
        columns["at_ns"] = self._wall_ns([each.at_ns for each in samples])
        columns["node_id"] = [self.node_id] * len(samples)
        insert(self.connection, "gpu_sample", columns, "INSERT OR REPLACE")

    def _processes(self, rows: Sequence[GpuProcess]) -> None:
        at_ns = self._wall_ns([each.at_ns for each in rows])
        pids = np.array([each.pid for each in rows], np.int64)
        known = self.processes.at(pids, np.array(at_ns, np.int64), False).tolist()
        columns: dict[str, list[Any]] = {
            "node_id": [self.node_id] * len(rows),
            "at_ns": at_ns,
            "gpu_id": [each.gpu_id for each in rows],
            "pid": [each.pid for each in rows],
            "process_id": [number if number > 0 else None for number in known],
            "comm_id": [
                self.names.comm(each.comm.encode("utf-8", "replace"), each.pid) if each.comm else None
                for each in rows
            ],
            "memory_bytes": [each.memory_bytes for each in rows],
            "sm_share": [each.sm_share for each in rows],
            "graphics": [each.graphics for each in rows],
        }
        insert(self.connection, "gpu_process", columns, "INSERT OR REPLACE")

    def _wall_ns(self, at_ns: list[int]) -> list[int]:
        found: list[int] = self.clock.wall_ns(np.array(at_ns, np.int64)).tolist()
        return found


# What tracing cost and what was watched less for it, as rows.


def save_overhead(
    connection: sqlite3.Connection, node_id: int, recording_id: int, clock: Clock, window: Window
) -> None:
    start_ns, end_ns = clock.wall_ns(window.start_ns), clock.wall_ns(window.end_ns)
    if window.overhead_share is not None:
        connection.execute(
            "INSERT OR REPLACE INTO overhead_second VALUES (?, ?, ?, ?, ?, ?)",
            (node_id, recording_id, start_ns, end_ns, window.overhead_share, window.watched_share),
        )
    if window.switches is not None:
        connection.execute(
            "INSERT OR REPLACE INTO switch_second VALUES (?, ?, ?, ?, ?, ?)",
            (node_id, recording_id, start_ns, end_ns, window.switches, window.switches_ns),
        )
    connection.executemany(
        "INSERT INTO governor_action VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                node_id, recording_id, clock.wall_ns(each.at_ns), clean(each.what), clean(each.before),
                clean(each.after), clean(each.why, 400), each.watched_share,
            )
            for each in window.actions
        ],
    )  # fmt: skip
    moved = window.threads[window.threads["estimated_ns"] > 0]
    connection.executemany(
        "INSERT INTO thread_estimate VALUES (?, ?, ?, ?, ?)",
        [
            (node_id, start_ns, pid, tid, ns)
            for pid, tid, ns in zip(
                moved["pid"].tolist(), moved["tid"].tolist(), moved["estimated_ns"].tolist(), strict=True
            )
        ],
    )
