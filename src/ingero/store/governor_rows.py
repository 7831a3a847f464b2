"""What tracing cost and what was watched less for it, as rows."""

from __future__ import annotations

import sqlite3

from ingero.clock import Clock
from ingero.model.window import Window
from ingero.units import clean


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
