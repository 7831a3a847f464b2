"""What a collector knows of the fleet, rendered for an assistant.

Names and texts were written by the nodes: they are marked as data like the rest.
"""

from __future__ import annotations

from typing import Any

from ingero.model.fleet import FindingHealth, FleetStatus, NodeHistory, NodePoint, NodeStatus
from ingero.serve.mcp import rendering
from ingero.serve.mcp.bounds import Answer
from ingero.serve.mcp.quoting import data, name, word
from ingero.units import format_share

POINTS = 60  # of a node's past, in brief


def status_part(found: FleetStatus, full: bool) -> Answer:
    """Worst first."""
    counts = ", ".join(f"{count} {state}" for state, count in found.states.items() if count)
    return {
        "answer": f"{found.total} nodes: {counts}"
        if found.total
        else "no node matches, or none has reported yet",
        "as_of": rendering.instant(found.at_ns or None),
        "nodes": [_node(each, full) for each in found.nodes],
        "more_nodes": found.left_out or None,
        "clusters": [name(each) for each in found.clusters if each] or None,
    }


def _node(each: NodeStatus, full: bool) -> Answer:
    findings = each.findings if full else each.findings[:1]
    return rendering.known(
        {
            "node": name(each.node),
            "cluster": name(each.cluster) if each.cluster else "",
            "state": word(each.state),
            "last_heard": rendering.instant(each.last_seen_ns),
            "tells_of_another_time": rendering.instant(each.other_time_ns),
            "straggles": [data(one.text) for one in each.straggling] or None,
            "findings": [_finding(one) for one in findings] or None,
            "more_findings": max(0, len(each.findings) - len(findings)) or None,
            "jobs": [name(one) for one in each.job_names] or None,
            "namespaces": [name(one) for one in each.namespaces if one] or None,
            "gpus": each.gpus,
            "gpu_busy": _share(each.gpu_busy_share),
            "gpu_memory": _share(each.memory_share),
            "pace_of_usual": _share(each.pace_share),
            "lost_events": each.lost_events or None,
            "rounds_dropped": each.dropped_rounds or None,
        }
    )


def _finding(each: FindingHealth) -> Answer:
    return rendering.known(
        {
            "kind": word(each.kind),
            "severity": word(each.severity),
            "title": data(each.title, 300),
            "cause": data(each.cause, 300) if each.cause else "",
            "fix": data(each.fix, 300) if each.fix else "",
            "since": rendering.instant(each.first_ns),
        }
    )


def history_part(found: NodeHistory, full: bool) -> Answer:
    """Points evenly over the time, the last one among them."""
    every = 1 if full else -(-len(found.points) // POINTS) or 1
    points = found.points[::-1][::every][::-1]
    return {
        "answer": f"{len(found.points)} points, {len(found.findings)} findings"
        if found.points
        else "this node reported nothing in that time",
        "node": name(found.node),
        "points": [_point(each) for each in points],
        "findings": [_past(each) for each in found.findings] or None,
    }


def _point(each: NodePoint) -> Answer:
    return rendering.known(
        {
            "at": rendering.instant(each.at_ns),
            "pace_of_usual": _share(each.pace_share),
            "gpu_busy": _share(each.gpu_busy_share),
            "lost_events": each.lost_events or None,
        }
    )


def _past(each: dict[str, Any]) -> Answer:
    return rendering.known(
        {
            "kind": word(each["kind"]),
            "severity": word(each["severity"]),
            "title": data(each["title"], 300),
            "cause": data(each["cause"], 300) if each["cause"] else "",
            "from": rendering.instant(each["first_ns"]),
            "to": rendering.instant(each["last_ns"]) if each["ended"] else "lasts",
        }
    )


def _share(value: float | None) -> str | None:
    return None if value is None else format_share(value)
