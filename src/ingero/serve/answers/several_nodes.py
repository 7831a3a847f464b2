"""The diagnoses of several nodes as one report: each finding and process says whose it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from ingero.correlate.timeline import Timeline
from ingero.detectors import in_order
from ingero.detectors.across import Across, judge_across
from ingero.model.clocks import Clocks
from ingero.model.finding import Finding
from ingero.model.report import (
    GpuLine,
    LabelReport,
    LabelTime,
    Loss,
    NotWatched,
    OverheadReport,
    Report,
    ReportWindow,
    SystemContext,
)
from ingero.store.clock_rows import read_offsets
from ingero.store.reader import Reader


def combined(reports: list[Report], recorded_ns: int, across: Across | None = None) -> Report:
    """Findings worst first, whichever node they are of, and what only all of them together tell."""
    across = across or Across()
    if len(reports) == 1:
        return reports[0]
    return Report(
        node=", ".join(each.node for each in reports),
        window=ReportWindow(
            min(each.window.from_ns for each in reports),
            max(each.window.to_ns for each in reports),
            reports[0].window.anchor,
        ),
        system=_system([each.system for each in reports], _gpus(reports)),
        findings=in_order(
            [
                *across.findings,
                *(one for each in reports for one in each.findings if not across.covers(each.node, one)),
            ]
        ),
        processes=[
            msgspec.structs.replace(process, node=each.node) for each in reports for process in each.processes
        ],
        losses=all_losses(each.losses for each in reports),
        overhead=_overhead([each.overhead for each in reports]),
        not_watched=[*across.not_watched, *_not_watched(reports)],
        unexplained=[
            msgspec.structs.replace(one, node=each.node)
            for each in reports
            for one in each.unexplained
            if not across.covers(each.node, one)
        ],
        bound=[msgspec.structs.replace(one, node=each.node) for each in reports for one in each.bound],
        recorded_ns=recorded_ns,
        by=_by([(each.node, each.by) for each in reports if each.by is not None]),
    )


def _by(told: list[tuple[str, LabelReport]]) -> LabelReport | None:
    """A step of several nodes is one step: as long as on the slowest, with the time of all."""
    if not told:
        return None
    found: dict[str, LabelTime] = {}
    for node, value in ((node, value) for node, part in told for value in part.values):
        each = msgspec.structs.replace(value, nodes=(node,) * len(value.pids))
        other = found.get(each.value)
        found[each.value] = each if other is None else _both(other, each)
    parts = [part for _, part in told]
    values = sorted(found.values(), key=lambda each: (-each.took_ns, each.value))
    usual = sorted(part.usual_ns for part in parts if part.usual_ns is not None)
    return LabelReport(
        parts[0].key, max(part.count for part in parts), usual[len(usual) // 2] if usual else None, values
    )


def _both(one: LabelTime, other: LabelTime) -> LabelTime:
    time = {name: one.time.get(name, 0) + other.time.get(name, 0) for name in {**one.time, **other.time}}
    located = [
        (each.located_share, sum(each.time.values()))
        for each in (one, other)
        if each.located_share is not None
    ]
    total = sum(ns for _, ns in located)
    share = sum(part * ns for part, ns in located) / total if total else None
    pids, nodes = (*one.pids, *other.pids), (*one.nodes, *other.nodes)
    return LabelTime(one.value, pids, max(one.took_ns, other.took_ns), time, share, nodes)


def _gpus(reports: list[Report]) -> list[GpuLine]:
    return [msgspec.structs.replace(card, node=each.node) for each in reports for card in each.system.gpus]


def _system(systems: list[SystemContext], gpus: list[GpuLine]) -> SystemContext:
    """Means and sums over the nodes; the load of one machine says nothing about the others."""
    cores = [each.cores for each in systems if each.cores is not None]
    swaps = [each.swap_bytes for each in systems if each.swap_bytes is not None]
    return SystemContext(
        _mean(each.cpu_share for each in systems),
        _mean(each.memory_share for each in systems),
        None,
        sum(cores) if cores else None,
        sum(swaps) if swaps else None,
        {name: _mean(each.psi.get(name) for each in systems) for name in systems[0].psi},
        gpus,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def all_losses(parts: Iterable[list[Loss]]) -> list[Loss]:
    """Of all nodes, by reason."""
    found: dict[str, Loss] = {}
    for loss in (loss for part in parts for loss in part):
        seen = found.get(loss.reason, Loss(loss.reason, 0, loss.from_ns, loss.to_ns))
        found[loss.reason] = Loss(
            loss.reason,
            seen.count + loss.count,
            min(seen.from_ns, loss.from_ns),
            max(seen.to_ns, loss.to_ns),
        )
    return sorted(found.values(), key=lambda loss: -loss.count)


def _overhead(overheads: list[OverheadReport]) -> OverheadReport:
    """Of the node where it is most."""
    return max(overheads, key=lambda each: -1.0 if each.share is None else each.share)


def _not_watched(reports: list[Report]) -> Iterable[NotWatched]:
    """Once each, with the nodes where it is not the same on all."""
    where: dict[tuple[str, str], list[str]] = {}
    for report in reports:
        for each in report.not_watched:
            where.setdefault((each.what, each.why), []).append(report.node)
    for (what, why), nodes in where.items():
        named = "" if len(nodes) == len(reports) else f" on {', '.join(nodes)}"
        yield NotWatched(f"{what}{named}", why)


# The nodes of a merged database looked at together.


WAITING = "who waits for whom across nodes"
NOT_TOGETHER = Across(not_watched=[NotWatched(WAITING, "only some processes were asked for")])


def across_nodes(
    reader: Reader,
    seen: Mapping[str, Sequence[Timeline]],
    local: Mapping[str, Sequence[Finding]],
) -> Across:
    """Of each node the recording with most collectives counts."""
    chosen = {
        node: max(timelines, key=lambda each: len(each.facts.arrivals))
        for node, timelines in seen.items()
        if timelines
    }
    if len(chosen) < 2:
        return Across()
    return judge_across(chosen, Clocks.of(read_offsets(reader.connection)), local)


def across_recordings(path: Path, local: Mapping[str, Sequence[Finding]]) -> Across:
    """The same of a merged database whose nodes were diagnosed elsewhere: their last recordings."""
    with ExitStack() as readers, Reader(path) as whole:
        seen: dict[str, list[Timeline]] = {}
        for node in whole.nodes():
            reader = readers.enter_context(Reader(path, node))
            last = reader.recordings()[-1]
            seen[node] = [Timeline(reader.facts(last, last.started_ns, last.last_ns))]
        return across_nodes(whole, seen, local)
