"""The same questions to many nodes, rendered for an assistant: who did not answer comes first.

Everything a node says is somebody else's text: it is marked as data like the rest.
"""

from __future__ import annotations

from typing import Literal

from ingero.serve.answers.asked_nodes import Fleet, FleetState, NodeState, get_overview
from ingero.serve.answers.nodes_report import ask_fleet_report
from ingero.serve.answers.nodes_rows import ask_fleet_sql, ask_fleet_statistics
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.query import Range
from ingero.serve.mcp import parts, rendering
from ingero.serve.mcp.bounds import Answer
from ingero.serve.mcp.quoting import data, name, word
from ingero.units import format_ns

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
