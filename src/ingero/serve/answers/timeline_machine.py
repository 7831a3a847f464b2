"""What belongs to a machine rather than to one thread: counters, moments, disk requests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from ingero.serve.answers.timeline_calls import CALL_LAYERS
from ingero.serve.answers.timeline_rows import Asked, tidy
from ingero.serve.answers.tracks import EVENT, Item, Lanes, Moment, Sample, Slice
from ingero.store.schema import SEQ_MASK

# Column of system_sample, its name on the timeline, unit.
COUNTERS = (
    ("cpu_share", "CPU", "share"),
    ("memory_share", "memory", "share"),
    ("memory_available_bytes", "memory available", "bytes"),
    ("load1", "load", "threads"),
    ("swap_bytes", "swap", "bytes"),
    ("psi_cpu_some", "pressure: CPU", "share"),
    ("psi_memory_some", "pressure: memory", "share"),
    ("psi_io_some", "pressure: I/O", "share"),
)


# Column of gpu_sample, its name behind the card's, unit.
CARD_COUNTERS = (
    ("gpu_share", "busy", "share"),
    ("memory_busy_share", "memory busy", "share"),
    ("memory_used_bytes", "memory", "bytes"),
    ("sm_clock_mhz", "SM clock", "MHz"),
    ("memory_clock_mhz", "memory clock", "MHz"),
    ("power_mw", "power", "mW"),
    ("temperature_c", "temperature", "°C"),
    ("pcie_rx_bytes_per_s", "PCIe to it", "bytes/s"),
    ("pcie_tx_bytes_per_s", "PCIe from it", "bytes/s"),
    ("reasons", "clock reasons", "bits"),
)


def counters(asked: Asked) -> Iterator[Item]:
    columns = ", ".join(column for column, _, _ in COUNTERS)
    rows = asked.rows(
        f"SELECT node_id, at_ns, {columns} FROM system_sample WHERE at_ns >= ? AND at_ns < ? ORDER BY at_ns",
        asked.between,
    )
    for node_id, at_ns, *values in rows:
        parent = asked.tracks.machine(node_id)
        for (_, name, unit), value in zip(COUNTERS, values, strict=True):
            if value is not None:
                yield Sample(asked.tracks.counter(parent, name, unit).id, at_ns, value)


def card_counters(asked: Asked) -> Iterator[Item]:
    """Each card's own, under its machine."""
    columns = ", ".join(column for column, _, _ in CARD_COUNTERS)
    rows = asked.rows(
        f"SELECT node_id, at_ns, gpu_id, {columns} FROM gpu_sample WHERE at_ns >= ? AND at_ns < ?"
        " ORDER BY at_ns",
        asked.between,
    )
    for node_id, at_ns, gpu_id, *values in rows:
        parent = asked.tracks.machine(node_id)
        for (_, name, unit), value in zip(CARD_COUNTERS, values, strict=True):
            if value is not None:
                yield Sample(asked.tracks.counter(parent, f"GPU {gpu_id}: {name}", unit).id, at_ns, value)


def moments(asked: Asked) -> Iterator[Item]:
    """What has no length: processes that come and go, faults, retransmits."""
    rows = asked.rows(
        "SELECT e.node_id, e.process_id, e.pid, c.text, e.ts_ns, e.op_id, e.id, e.arg0, x.message"
        " FROM event e LEFT JOIN string c ON c.id = e.comm_id LEFT JOIN xid_detail x ON x.event_id = e.id"
        f" WHERE {asked.events(*CALL_LAYERS, 'host', 'tcp', 'block', lasting=False)}"
        " ORDER BY e.node_id, e.process_id, e.pid, e.ts_ns, e.id"
    )
    for (node_id, process_id, pid), group in groupby(rows, key=lambda row: row[:3]):
        lane = 0
        for _, _, _, comm, at_ns, op, number, argument, message in group:
            if not lane:
                owner = (
                    asked.tracks.machine(node_id)
                    if pid is None
                    else asked.tracks.process(node_id, process_id, pid, comm)
                )
                lane = asked.tracks.lane(owner, "moments").id
            found: list[tuple[str, Any]] = [(EVENT, number & SEQ_MASK)]
            if argument is not None:
                found.append(("arg0", argument))
            if message:
                found.append(("message", tidy(message, 200)))
            yield Moment(lane, at_ns, asked.ops[op][1], "host", tuple(found))


def requests(asked: Asked) -> Iterator[Item]:
    """Block requests, which overlap: on as many lanes as were in flight at once."""
    rows = asked.rows(
        "SELECT e.node_id, d.dev, e.ts_ns, e.duration_ns, e.op_id, e.id, e.arg1, e.pid, c.text"
        " FROM event e LEFT JOIN block_detail d ON d.event_id = e.id"
        " LEFT JOIN string c ON c.id = e.comm_id"
        f" WHERE {asked.events('block')} ORDER BY e.node_id, d.dev, e.ts_ns, e.id"
    )
    for (node_id, dev), group in groupby(rows, key=lambda row: row[:2]):
        lanes, name = Lanes(), f"disk {dev >> 20}:{dev & 0xFFFFF}" if dev else "disk"
        for _, _, at_ns, took, op, number, size, pid, comm in group:
            lane = lanes.take(at_ns, at_ns + took)
            track = asked.tracks.lane(asked.tracks.machine(node_id), f"{name} {lane + 1}", lane)
            found: list[tuple[str, Any]] = [(EVENT, number & SEQ_MASK)]
            found += [] if size is None else [("bytes", size)]
            found += [] if pid is None else [("pid", pid), ("comm", tidy(comm or "?", 64))]
            yield Slice(track.id, at_ns, at_ns + took, asked.ops[op][1], "block", tuple(found))
