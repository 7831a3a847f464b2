"""The GPUs of a recording: what they are, how busy, hot and throttled they were, and whose memory they hold.

The card's own counters are recorded where its driver tells them; a recording without
them has none, which is said and is no zero.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ingero.model.gpus import REASONS, reason_names
from ingero.model.report import GpuLine
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.sense import checked, sense_made_of
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.units import clean

POINTS = 300
NOT_WATCHED = "The GPU's own counters (NVML) are not in this recording. Run ingero check to see why."
# Column of gpu_samples, what it is called, unit, what makes it the unit.
SERIES = (
    ("gpu_share", "GPU busy", "share", 1.0),
    ("memory_used_bytes", "memory used", "bytes", 1.0),
    ("memory_busy_share", "memory busy", "share", 1.0),
    ("sm_clock_mhz", "clock", "MHz", 1.0),
    ("power_mw", "power", "W", 0.001),
    ("temperature_c", "temperature", "°C", 1.0),
    ("pcie_rx_bytes_per_s", "PCIe in", "bytes/s", 1.0),
    ("pcie_tx_bytes_per_s", "PCIe out", "bytes/s", 1.0),
)


class Series(msgspec.Struct, frozen=True):
    """Means over stretches of time; None where nothing is known."""

    title: str
    unit: str
    mean: float | None
    highest: float | None
    values: list[float | None]


class OnGpu(msgspec.Struct, frozen=True):
    """A process with memory on a card, at its most."""

    pid: int
    comm: str | None
    memory_bytes: int | None
    busy_share: float | None


class Gpu(msgspec.Struct, frozen=True):
    node: str
    gpu_id: int
    name: str
    driver: str | None
    memory_bytes: int | None
    power_limit_w: float | None
    at_ns: list[int]  # of the values of each series, after the window's begin
    series: list[Series]
    throttled: dict[str, float]  # reason, and the share of samples with it
    processes: list[OnGpu]


class GpusAnswer(msgspec.Struct, frozen=True):
    """`not_watched` says why there are none."""

    window: WindowAnswer
    gpus: list[Gpu]
    not_watched: str | None


def get_gpus(db: Path | None, wanted: Range, node: str | None = None) -> GpusAnswer:
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        with reader.trouble_told(), sense_made_of(reader):
            cards = _cards(reader) if columns_of(reader, "gpus") else []
            found = [_gpu(reader, when, card) for card in cards]
            window = WindowAnswer(when.from_ns, when.to_ns)
            return checked(GpusAnswer(window, found, None if found else NOT_WATCHED))


def columns_of(reader: Reader, view: str) -> set[str]:
    """Empty where the recording has no such view."""
    return {row[0] for row in reader.rows("SELECT name FROM pragma_table_info(?)", (view,))}


def _cards(reader: Reader) -> list[tuple[Any, ...]]:
    return reader.rows(
        "SELECT node, gpu_id, name, driver, memory_bytes, power_limit_default_mw FROM gpus"
        " GROUP BY node, gpu_id HAVING MAX(last_ns) ORDER BY node, gpu_id"
    )


def _gpu(reader: Reader, when: TimeRange, card: tuple[Any, ...]) -> Gpu:
    node, gpu_id, name, driver, memory, limit = card
    known = columns_of(reader, "gpu_samples")
    chosen = [each for each in SERIES if each[0] in known]
    bin_ns = max(1, -(-when.length_ns // POINTS))
    means = "".join(f", AVG({column}), MAX({column})" for column, _, _, _ in chosen)
    rows = reader.rows(
        f"SELECT MIN(timestamp_ns) - ?{means} FROM gpu_samples"
        " WHERE node = ? AND gpu_id = ? AND timestamp_ns >= ? AND timestamp_ns < ?"
        " GROUP BY (timestamp_ns - ?) / ? ORDER BY 1",
        (when.from_ns, node, gpu_id, when.from_ns, when.to_ns, when.from_ns, bin_ns),
    )
    series = [_series(each, at, rows) for at, each in enumerate(chosen)]
    return Gpu(
        clean(node, 128), gpu_id, clean(name, 128), driver, memory, limit / 1000 if limit else None,
        [row[0] for row in rows], [each for each in series if each.mean is not None],
        _throttled(reader, when, node, gpu_id), _processes(reader, when, node, gpu_id),
    )  # fmt: skip


def _series(chosen: tuple[str, str, str, float], at: int, rows: list[tuple[Any, ...]]) -> Series:
    _, title, unit, scale = chosen
    values = [None if row[1 + 2 * at] is None else row[1 + 2 * at] * scale for row in rows]
    highest = [row[2 + 2 * at] * scale for row in rows if row[2 + 2 * at] is not None]
    known = [value for value in values if value is not None]
    return Series(title, unit, sum(known) / len(known) if known else None, max(highest, default=None), values)


def _throttled(reader: Reader, when: TimeRange, node: str, gpu_id: int) -> dict[str, float]:
    """Of all samples, also those without any reason."""
    rows = reader.rows(
        "SELECT reason_names, COUNT(*) FROM gpu_samples WHERE node = ? AND gpu_id = ? AND timestamp_ns >= ?"
        " AND timestamp_ns < ? GROUP BY 1",
        (node, gpu_id, when.from_ns, when.to_ns),
    )
    total, found = sum(count for _, count in rows), dict[str, float]()
    for names, count in rows:
        for name in str(names or "").replace(",", " ").split():
            found[name] = found.get(name, 0.0) + count / total
    return found


def _processes(reader: Reader, when: TimeRange, node: str, gpu_id: int) -> list[OnGpu]:
    if not columns_of(reader, "gpu_processes"):
        return []
    rows = reader.rows(
        "SELECT pid, comm, MAX(memory_bytes), AVG(sm_share) FROM gpu_processes WHERE node = ? AND gpu_id = ?"
        " AND timestamp_ns >= ? AND timestamp_ns < ? GROUP BY pid, comm ORDER BY 3 DESC LIMIT 50",
        (node, gpu_id, when.from_ns, when.to_ns),
    )
    return [OnGpu(*row) for row in rows]


# The cards over a range of time, as answers show them.


_ANY_REASON = " + ".join(f"MAX(t.reasons & {bit})" for bit, _, _ in REASONS)
_CARDS = f"""
    SELECT t.gpu_id, AVG(t.gpu_share), MAX(t.memory_used_bytes), CAST(AVG(t.sm_clock_mhz) AS INTEGER),
        CAST(AVG(t.power_mw) AS INTEGER), MIN(t.power_limit_mw), MAX(t.temperature_c), {_ANY_REASON},
        MAX(t.lost), g.name, g.uuid, g.memory_bytes, g.sm_clock_max_mhz
    FROM gpu_sample t
    LEFT JOIN gpu g ON g.node_id = t.node_id AND g.gpu_id = t.gpu_id AND g.last_ns =
        (SELECT MAX(o.last_ns) FROM gpu o WHERE o.node_id = t.node_id AND o.gpu_id = t.gpu_id)
    WHERE t.at_ns >= ? AND t.at_ns < ? GROUP BY t.node_id, t.gpu_id ORDER BY t.node_id, t.gpu_id"""


def gpus_within(reader: Reader, when: TimeRange) -> list[GpuLine]:
    """Means, and the most memory and heat; empty: no card was asked."""
    return [
        GpuLine(
            gpu_id=gpu_id,
            name=name or "GPU",
            uuid=uuid or None,
            gpu_share=share,
            memory_used_bytes=used,
            memory_bytes=size,
            sm_clock_mhz=clock,
            sm_clock_max_mhz=highest,
            power_mw=power,
            power_limit_mw=limit,
            temperature_c=degrees,
            clock_reasons=reason_names(reasons),
            lost=bool(lost),
        )
        for gpu_id, share, used, clock, power, limit, degrees, reasons, lost, name, uuid, size, highest in (
            reader.rows(_CARDS, (when.from_ns, when.to_ns))
        )
    ]
