"""Facts of a stretch of time that do not come from windows' sums: the GPUs, pods, and steps a job said
itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from ingero.model.facts import SLICE_NS, Facts, Marks, PodIncident
from ingero.model.gpu_facts import BUSY_SHARE, GPU_SLICE, GPU_USER, CardTrouble, GpuFacts
from ingero.model.gpus import FORCED, REASONS, SW_POWER_CAP, GpuCard
from ingero.model.window import Records

# The cards over a stretch of time, read from the database for the diagnosis.

_BUSY = f"gpu_share >= {BUSY_SHARE}"
_ANY_REASON = " + ".join(f"MAX(CASE WHEN {_BUSY} THEN reasons & {bit} END)" for bit, _, _ in REASONS)
_SLICES = f"""
    SELECT (at_ns - ?) / {SLICE_NS} AS slice, gpu_id, COUNT(*), AVG(gpu_share),
        AVG(CASE WHEN {_BUSY} THEN sm_clock_mhz END),
        AVG(CASE WHEN {_BUSY} THEN (reasons & {FORCED}) > 0 END),
        AVG(CASE WHEN {_BUSY} THEN (reasons & {SW_POWER_CAP}) > 0 END),
        {_ANY_REASON}, AVG(power_mw), MIN(power_limit_mw), MAX(temperature_c),
        MAX(CASE WHEN {_BUSY} THEN pcie_gen END), MAX(CASE WHEN {_BUSY} THEN pcie_width END),
        AVG(pcie_rx_bytes_per_s), AVG(pcie_tx_bytes_per_s), MAX(memory_used_bytes)
    FROM gpu_sample WHERE node_id = ? AND at_ns >= ? AND at_ns < ? GROUP BY slice, gpu_id"""
_USERS = f"""
    SELECT (at_ns - ?) / {SLICE_NS} AS slice, gpu_id, pid, AVG(sm_share), MAX(memory_bytes)
    FROM gpu_process WHERE node_id = ? AND at_ns >= ? AND at_ns < ? GROUP BY slice, gpu_id, pid"""
_NAMES = """
    SELECT p.pid, MAX(s.text) FROM gpu_process p JOIN string s ON s.id = p.comm_id
    WHERE p.node_id = ? AND p.at_ns >= ? AND p.at_ns < ? GROUP BY p.pid"""
# Only what came new counts, and a counter that begins anew with the driver has nothing new.
_TROUBLE = """
    SELECT gpu_id, SUM(new), MAX(remap_failed), MAX(lost), MIN(at_ns), MAX(at_ns) FROM (
        SELECT gpu_id, at_ns, remap_failed, lost,
            MAX(0, ecc_uncorrected - LAG(ecc_uncorrected) OVER (PARTITION BY gpu_id ORDER BY at_ns)) AS new
        FROM gpu_sample WHERE node_id = ? AND at_ns >= ? AND at_ns < ?)
    WHERE new > 0 OR remap_failed OR lost GROUP BY gpu_id"""
# The reason is told once in a recording, which may have been before the stretch asked for.
_WHY = """
    SELECT why FROM not_watched WHERE node_id = ? AND pid = 0 AND what = 'gpu' AND at_ns <= ?
    AND recording_id = (SELECT id FROM recording WHERE node_id = ? AND started_ns < ?
        ORDER BY started_ns DESC LIMIT 1) ORDER BY at_ns DESC LIMIT 1"""
_TEXTS = ("name", "uuid", "bus_id", "driver", "compute_mode", "unsupported")
_COLUMNS = tuple(field.name for field in fields(GpuCard))


def read_gpus(
    connection: sqlite3.Connection, node_id: int, origin_ns: int, from_ns: int, to_ns: int
) -> GpuFacts:
    between = (node_id, from_ns, to_ns)
    found = GpuFacts()
    found.samples = _floats(connection.execute(_SLICES, (origin_ns, *between)).fetchall(), GPU_SLICE)
    why = connection.execute(_WHY, (node_id, to_ns, node_id, to_ns)).fetchone()
    found.why = why[0] if why else ""
    if not len(found.samples):
        return found
    found.users = _floats(connection.execute(_USERS, (origin_ns, *between)).fetchall(), GPU_USER)
    found.names = dict(connection.execute(_NAMES, between).fetchall())
    found.cards = {card.gpu_id: card for card in _cards(connection, node_id)}
    for gpu_id, ecc, failed, lost, first, last in connection.execute(_TROUBLE, between).fetchall():
        found.trouble.append(CardTrouble(gpu_id, ecc or 0, bool(failed), bool(lost), first, last))
    return found


def _cards(connection: sqlite3.Connection, node_id: int) -> list[GpuCard]:
    """The one seen last bears the number."""
    rows = connection.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM gpu WHERE node_id = ? ORDER BY last_ns", (node_id,)
    ).fetchall()
    return [_card(dict(zip(_COLUMNS, row, strict=True))) for row in rows]


def _card(row: dict[str, Any]) -> GpuCard:
    """The file may come from anybody: what is no number where one belongs is not known."""
    for name, value in row.items():
        wanted = str if name in _TEXTS else int
        row[name] = value if isinstance(value, wanted) else None
    row["name"], row["gpu_id"] = row["name"] or "GPU", row["gpu_id"] or 0
    row["uuid"] = row["uuid"] or None
    row["mig"] = None if row["mig"] is None else bool(row["mig"])
    row["unsupported"] = tuple((row["unsupported"] or "").split("; ")) if row["unsupported"] else ()
    return GpuCard(**row)


def _floats(rows: Sequence[tuple[Any, ...]], dtype: np.dtype[np.void]) -> Records:
    """Rows as records; what is NULL is NaN."""
    found = np.zeros(len(rows), dtype)
    if rows:
        table = np.array(rows, np.float64)
        for at, name in enumerate(dtype.names or ()):
            found[name] = table[:, at]
    return found


# What the kubelet told of pods, for the diagnosis; nothing where it was not asked.


MAX_INCIDENTS = 1000
_EVENTS = (
    "SELECT at_ns, pod, namespace, container, event, reason, exit_code, restarts FROM pod_event"
    " WHERE node_id = ? AND at_ns >= ? AND at_ns < ? AND event <> 'seen'"
    f" ORDER BY at_ns LIMIT {MAX_INCIDENTS}"
)
_SEEN = "SELECT 1 FROM pod_event WHERE node_id = ? AND event = 'seen' AND at_ns >= ? AND at_ns < ? LIMIT 1"
_ENDED_FOR = (
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
        why = connection.execute(_ENDED_FOR, (node_id, from_ns, to_ns)).fetchone()
        found.absent.setdefault("pods", why[0] if why else "the kubelet was not asked, or told of no pod")


# The steps a process said itself, by labels, read from the database.


STEP_LABEL = "step"  # the key by which jobs say their steps
MOST = 200_000
_SAID = """
    FROM annotation WHERE node_id = ? AND start_ns >= ? AND start_ns < ? AND pid = ?
        AND key_id = (SELECT id FROM string WHERE text = ?) AND TYPEOF(number) = 'integer'"""


def read_said(connection: sqlite3.Connection, span: tuple[int, int, int], pid: int) -> Marks:
    """`span`: node, from and to. Of very many labels evenly spread ones: numbers tell what lies between."""
    asked = (*span, pid, STEP_LABEL)
    every = connection.execute(f"SELECT COUNT(*) {_SAID}", asked).fetchone()[0] // MOST + 1
    sql = f"SELECT CAST(start_ns AS INTEGER), number {_SAID} AND id % {every} = 0 ORDER BY 1, id"
    return np.array(connection.execute(sql, asked).fetchall(), np.int64).reshape(-1, 2)
