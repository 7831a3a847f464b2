"""What the kubelet told of pods, for the diagnosis; nothing where it was not asked."""

from __future__ import annotations

import sqlite3

from ingero.model.facts import Facts, PodIncident

MAX_INCIDENTS = 1000
_EVENTS = (
    "SELECT at_ns, pod, namespace, container, event, reason, exit_code, restarts FROM pod_event"
    " WHERE node_id = ? AND at_ns >= ? AND at_ns < ? AND event <> 'seen'"
    f" ORDER BY at_ns LIMIT {MAX_INCIDENTS}"
)
_SEEN = "SELECT 1 FROM pod_event WHERE node_id = ? AND event = 'seen' AND at_ns >= ? AND at_ns < ? LIMIT 1"
_WHY = (
    "SELECT why FROM not_watched WHERE node_id = ? AND what = 'pods' AND at_ns >= ? AND at_ns <= ?"
    " ORDER BY at_ns DESC LIMIT 1"
)
# A container of a pod, by what the kubelet wrote into its cgroup path.
_IN_A_POD = (
    "SELECT 1 FROM container WHERE node_id = ? AND (pod IS NOT NULL OR cgroup_path GLOB '*kubepods*') LIMIT 1"
)


def read_pods(connection: sqlite3.Connection, found: Facts, node_id: int, from_ns: int, to_ns: int) -> None:
    """Restarts of a time without a word of the kubelet are unknown, not none, unless there are no pods."""
    found.pods = [
        PodIncident(*row)
        for row in connection.execute(_EVENTS, (node_id, from_ns, to_ns))
        if isinstance(row[0], int)
    ]
    # Each pod is told once: from when on it is known what becomes of them.
    if not connection.execute(_IN_A_POD, (node_id,)).fetchone():
        found.absent.pop("pods", None)
    elif not connection.execute(_SEEN, (node_id, found.origin_ns, to_ns)).fetchone():
        why = connection.execute(_WHY, (node_id, from_ns, to_ns)).fetchone()
        found.absent.setdefault("pods", why[0] if why else "the kubelet was not asked, or told of no pod")
