"""Whose a process or container is, and what became of pods, as rows.

Texts come from pods, environments and the kubelet: they are cleaned and capped here once
more, whoever hands them in.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from ingero.model.window import Container, Labels, PodEvent
from ingero.units import clean

MAX_LABELS = 64  # of one process or container
MAX_KEY, MAX_VALUE = 128, 256


def save_container_labels(connection: sqlite3.Connection, node_id: int, found: Iterable[Container]) -> None:
    """What is told now stands for all that was told of it before."""
    for each in found:
        if each.labels:
            connection.execute(
                "DELETE FROM container_label WHERE cgroup_id = ? AND node_id = ?", (each.cgroup_id, node_id)
            )
            connection.executemany(
                "INSERT OR REPLACE INTO container_label VALUES (?, ?, ?, ?)",
                [(node_id, each.cgroup_id, key, value) for key, value in _bounded(each.labels)],
            )


def save_process_labels(
    connection: sqlite3.Connection, node_id: int, process_id: int, labels: Labels
) -> None:
    """Of a row's number that another process had before nothing may be left."""
    connection.execute("DELETE FROM process_label WHERE process_id = ?", (process_id,))
    connection.executemany(
        "INSERT OR REPLACE INTO process_label (node_id, process_id, key, value) VALUES (?, ?, ?, ?)",
        [(node_id, process_id, key, value) for key, value in _bounded(labels)],
    )


def save_pod_events(
    connection: sqlite3.Connection, node_id: int, start_ns: int, events: Iterable[PodEvent]
) -> None:
    """Of a window that begins at `start_ns`: from then on it is known what becomes of a pod that was seen.

    The kubelet is asked at once, and may tell of its pods while probes are still being put on.
    """
    connection.executemany(
        "INSERT OR IGNORE INTO pod_event (node_id, at_ns, uid, pod, namespace, container, event, reason,"
        " exit_code, restarts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                node_id, max(each.at_ns, start_ns) if each.event == "seen" else each.at_ns,
                clean(each.uid, MAX_KEY), clean(each.pod, MAX_VALUE), clean(each.namespace, MAX_VALUE),
                clean(each.container, MAX_VALUE), each.event,
                clean(each.reason, MAX_VALUE) if each.reason else None, each.exit_code, each.restarts,
            )
            for each in events
        ],
    )  # fmt: skip


def _bounded(labels: Labels) -> Iterable[tuple[str, str]]:
    for key, value in labels[:MAX_LABELS]:
        yield clean(key, MAX_KEY), clean(value, MAX_VALUE)
