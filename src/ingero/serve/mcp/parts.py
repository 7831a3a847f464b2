"""Stacks, graphs, costs and rows of SQL as an assistant reads them; nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ingero import units
from ingero.serve.answers.cost import CostAnswer, CostLine
from ingero.serve.answers.graphs import GraphCounts, GraphEvent, Launched
from ingero.serve.answers.kernels import KernelsAnswer
from ingero.serve.answers.query import LabelledAnswer
from ingero.serve.answers.stacks import StackTime
from ingero.serve.mcp import rendering
from ingero.serve.mcp.bounds import data, name, place, word

Part = dict[str, Any]
CELL = 200  # characters


def several(parts: Iterable[Any]) -> bool:
    """Whether they are of several nodes; only then each says whose it is."""
    return len({each.node for each in parts}) > 1


def _of(each: Any, named: bool) -> Part:
    return {"node": name(each.node)} if named else {}


def stack_part(each: StackTime, named: bool) -> Part:
    return {
        **_of(each, named),
        "op": word(each.op),
        "layer": word(each.layer),
        "calls": each.calls,
        "total": units.format_ns(each.sum_ns),
        "max": units.format_ns(each.max_ns),
        "pid": each.pid,
        "processes": each.processes,
        "line": place(each.source.function, each.source.file, each.source.line) if each.source else None,
        "frames": rendering.frames(each.frames),
    }


def grouped_parts(found: LabelledAnswer) -> Part:
    """What each value of a label, or each tenant, called."""
    apart = several(row for each in found.values for row in each.operations)
    return {
        "answer": f"{len(found.values)} by {word(found.key)}, the one that held longest first",
        "window": {
            "from": rendering.instant(found.window.from_ns),
            "to": rendering.instant(found.window.to_ns),
            "counted_from": word(found.counted_from),
        },
        "groups": [
            {
                "who": name(each.value),
                "held": units.format_ns(each.held_ns),
                "operations": [rendering.operation_part(row, apart) for row in each.operations],
            }
            for each in found.values
        ],
        "lost": rendering.losses(found.losses),
    }


def kernel_parts(found: KernelsAnswer | None) -> Part:
    """What was launched, where that is known."""
    if found is None:
        return {"kernels": "too many calls to look through: ask about a shorter time with since"}
    if not found.launches:
        return {}
    return {
        "kernels": [
            {
                **_of(each, several(found.kernels)),
                "kernel": data(each.short or each.kernel, CELL),
                "pid": each.pid,
                "launches": each.launches,
                "share_of_launches": units.format_share(each.share),
                "launch_call_p50": units.format_ns(each.p50_ns),
            }
            for each in found.kernels
            if each.kernel is not None
        ],
        "launches_with_a_kernel_name": units.format_share(found.named_share),
    }


def graph_counts(each: GraphCounts, named: bool) -> Part:
    return {
        **_of(each, named),
        "pid": each.pid,
        "calls": each.calls,
        "failed": each.failed,
        "time_making_graphs": units.format_ns(each.making_ns),
    }


def graph_event(each: GraphEvent, named: bool) -> Part:
    part = {
        **_of(each, named),
        "at": rendering.instant(each.at_ns),
        "pid": each.pid,
        "tid": each.tid,
        "step": each.step,
        "op": word(each.op),
        "graph": _handle(each.graph),
        "executable": _handle(each.executable),
        "stream": _handle(each.stream),
        "took": units.format_ns(each.duration_ns),
        "failed_with": each.ret or None,
    }
    return {key: value for key, value in part.items() if value is not None}


def launched_part(each: Launched, total: int, named: bool) -> Part:
    return {
        **_of(each, named),
        "pid": each.pid,
        "executable": _handle(each.executable),
        "launches": each.launches,
        "share_of_launches": units.format_share(each.launches / total),
        "per_second": round(each.per_s, 1) if each.per_s is not None else None,
        "call_mean": units.format_ns(each.mean_ns),
        "call_max": units.format_ns(each.max_ns),
        "first": rendering.instant(each.first_ns),
        "last": rendering.instant(each.last_ns),
    }


def _handle(value: int | None) -> str | None:
    return None if value is None else f"0x{value & 0xFFFF_FFFF_FFFF_FFFF:x}"


def cell(value: object) -> object:
    if isinstance(value, str):
        return data(value, CELL)
    if isinstance(value, int | float) or value is None:
        return value
    return data(str(value), CELL)


def cost_part(found: CostAnswer, limit: int) -> Part:
    """Times are GPU time; the parts of a line sum to what it held."""
    lines = [_cost_line(each, found.prices.currency) for each in found.lines[:limit]]
    total = found.total
    saved = "" if total.money_lost is None else f", worth {_amount(total.money_lost, found.prices.currency)}"
    times = f"{units.format_ns(total.lost_ns)} of {units.format_ns(total.held_ns)}"
    return {
        "answer": f"{times} of GPU time were lost to findings{saved}"
        if found.lines
        else "no process held a GPU in that time",
        "by": found.by,
        "lines": lines,
        "total": _cost_line(total, found.prices.currency) if found.lines else None,
        "held_by_nobody": units.format_ns(found.free.held_ns) if found.free else None,
        "estimated_from_calls": [name(each) for each in found.estimated],
        "models_without_a_price": [name(each) for each in found.unpriced],
    }


def _amount(money: float | None, currency: str) -> str | None:
    return None if money is None else f"{units.clean(currency, 8)}{money:,.4f}"


def _cost_line(line: CostLine, currency: str) -> Part:
    good = line.efficiency
    return {
        "who": name(line.name),
        "held": units.format_ns(line.held_ns),
        "busy": units.format_ns(line.busy_ns),
        "lost": {word(each.kind): units.format_ns(each.ns) for each in line.lost},
        "idle": units.format_ns(line.idle_ns),
        "unknown": units.format_ns(line.unknown_ns),
        "cost": _amount(line.money, currency),
        "saved_if_fixed": _amount(line.money_lost, currency),
        "busy_share": units.format_share(good.busy_share),
        "clock_share": units.format_share(good.clock_share),
        "pace_share": units.format_share(good.pace_share),
        "goodput_share": units.format_share(good.goodput_share),
        "more_jobs_would_fit": good.more_jobs,
    }
