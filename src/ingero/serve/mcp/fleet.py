"""The same questions to many nodes, rendered for an assistant: who did not answer comes first.

Everything a node says is somebody else's text: it is marked as data like the rest.
"""

from __future__ import annotations

from typing import Any, Literal

from ingero.model.fleet import FindingHealth, FleetStatus, NodeHistory, NodePoint, NodeStatus
from ingero.serve.answers.asked_nodes import Fleet, FleetState, NodeState, get_overview
from ingero.serve.answers.nodes_report import ask_fleet_report
from ingero.serve.answers.nodes_rows import ask_fleet_sql, ask_fleet_statistics
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.query import Range
from ingero.serve.mcp import parts, rendering
from ingero.serve.mcp.bounds import Answer, data, name, word
from ingero.units import format_ns, format_share

Action = Literal["overview", "chains", "ops", "sql"]


def ask_nodes(
    fleet: Fleet,
    action: Action,
    since: str | None,
    pid: int | None,
    query: str | None,
    limit: int,
    full: bool,
) -> Answer:
    """One of the four questions."""
    if action == "sql":
        return _sql(fleet, query or "", limit)
    if action == "ops":
        return _operations(fleet, since, pid, limit)
    if action == "chains":
        return _chains(fleet, since, pid, limit, full)
    return _overview(fleet)


def _overview(fleet: Fleet) -> Answer:
    state, counts = get_overview(fleet)
    return {
        "answer": f"{state.answered} of {state.asked} nodes answer",
        **_who(state),
        "nodes": [_node(each, counts.get(each.address)) for each in state.nodes if each.answered],
    }


def _node(each: NodeState, counts: tuple[int, int] | None) -> Answer:
    clock = each.clock
    return rendering.known(
        {
            "node": [name(one) for one in each.nodes] if len(each.nodes) != 1 else name(each.nodes[0]),
            "address": data(each.address),
            "events": counts[0] if counts else None,
            "findings": counts[1] if counts else None,
            "version": word(each.version),
            "clock": f"{format_ns(clock.offset_ns)} ± {format_ns(clock.error_ns)}" if clock else None,
        }
    )


def _chains(fleet: Fleet, since: str | None, pid: int | None, limit: int, full: bool) -> Answer:
    report = ask_fleet_report(fleet, Range(since), pid)
    count = len(report.findings)
    return {
        "answer": f"{count} causal chain{'' if count == 1 else 's'} from {report.fleet.answered} nodes",
        **_who(report.fleet),
        "window": rendering.window(report),
        "chains": [rendering.finding_chain(each, full, several=True) for each in report.findings[:limit]],
        "more_findings": max(0, count - limit) or None,
        "lost": rendering.losses(report.losses),
        "not_watched": rendering.not_watched(report.not_watched),
    }


def _operations(fleet: Fleet, since: str | None, pid: int | None, limit: int) -> Answer:
    found = ask_fleet_statistics(fleet, Range(since), Filters(pid), limit)
    return {
        "answer": f"{len(found.operations)} operations of {found.fleet.answered} nodes, most time first"
        + (", there are more" if found.truncated else ""),
        **_who(found.fleet),
        "operations": [rendering.operation_part(each, several=True) for each in found.operations],
        "lost": rendering.losses(found.losses),
    }


def _sql(fleet: Fleet, query: str, limit: int) -> Answer:
    found = ask_fleet_sql(fleet, query, limit)
    return {
        "answer": f"{len(found.rows)} rows from {found.fleet.answered} nodes"
        + (", there are more" if found.truncated else ""),
        **_who(found.fleet),
        "columns": [word(column) for column in found.columns],
        "rows": [[parts.cell(row[column]) for column in found.columns] for row in found.rows],
        "notes": found.notes or None,
    }


def _who(state: FleetState) -> Answer:
    """Warnings about clocks, and who is missing."""
    silent = [each for each in state.nodes if not each.answered]
    return {
        "warnings": [data(note) for note in state.notes] or None,
        "not_answered": [
            {"address": data(each.address), "problem": word(each.problem), "why": data(each.why)}
            for each in silent
        ]
        or None,
    }


# What a collector knows of the fleet, rendered for an assistant.
#
# Names and texts were written by the nodes: they are marked as data like the rest.


POINTS = 60  # of a node's past, in brief


def status_part(found: FleetStatus, full: bool) -> Answer:
    """Worst first."""
    counts = ", ".join(f"{count} {state}" for state, count in found.states.items() if count)
    return {
        "answer": f"{found.total} nodes: {counts}"
        if found.total
        else "no node matches, or none has reported yet",
        "as_of": rendering.instant(found.at_ns or None),
        "nodes": [_collected_node(each, full) for each in found.nodes],
        "more_nodes": found.left_out or None,
        "clusters": [name(each) for each in found.clusters if each] or None,
    }


def _collected_node(each: NodeStatus, full: bool) -> Answer:
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
