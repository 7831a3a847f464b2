"""The cards over a range of time, as answers show them."""

from __future__ import annotations

from ingero.model.gpus import REASONS, reason_names
from ingero.model.report import GpuLine
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader

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
