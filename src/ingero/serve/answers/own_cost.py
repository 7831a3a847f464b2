"""What tracing took beside the hits of its probes, in words."""

from __future__ import annotations

from ingero.model.report import OverheadReport
from ingero.units import format_share


def own_cost_words(overhead: OverheadReport) -> str:
    """As far as it is known; empty where nothing is."""
    parts = []
    if overhead.agent_cpu_share is not None:
        parts.append(f"used {format_share(overhead.agent_cpu_share)} of one core")
    if overhead.taken_from_job_share is not None:
        parts.append(
            f"made the job wait for a core {format_share(overhead.taken_from_job_share)} of its time"
        )
    if overhead.bystanders_share is not None:
        parts.append(f"cost other programs {format_share(overhead.bystanders_share)} of all cores")
    return f"ingero itself {', '.join(parts)}" if parts else ""
