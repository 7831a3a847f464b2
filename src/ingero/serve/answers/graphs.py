"""CUDA graphs: how they came to be, and how often each is launched.

Handles are addresses in one process: one that was destroyed may name another graph later, and
the same in another process, on this node or another, is another graph. A handle that is not
known is None; in older recordings it is 0, which no graph has.
Counts by process come from the histograms and are those of all calls; what is said of
one graph comes from the stored rows. The driver's calls inside the runtime's are left out.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from ingero.model.report import Loss
from ingero.serve.answers.missing import losses_within
from ingero.serve.answers.operations import Filters, OperationStats, recorded_ns, stats_by_process
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.sense import checked, sense_made_of
from ingero.serve.answers.whose import EVERYBODY, Whose, only_theirs
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store.location import last_path
from ingero.store.reader import Reader

# What a function does to a graph, by a part of its name; the first that fits.
STEPS = (
    ("BeginCapture", "begin_capture"),
    ("EndCapture", "end_capture"),
    ("GraphCreate", "create"),
    ("GraphInstantiate", "instantiate"),
    ("GraphExecUpdate", "update"),
    ("GraphLaunch", "launch"),
    ("GraphUpload", "upload"),
    ("GraphExecDestroy", "destroy_executable"),
    ("GraphDestroy", "destroy"),
)
MOST_EVENTS = 5_000  # of making and destroying; more are counted, not listed
_EVENTS = f"""
    SELECT e.ts_ns, n.name, e.pid, e.tid, o.name, e.duration_ns, e.ret, e.stream, NULLIF(e.arg0, 0),
        NULLIF(e.arg1, 0), NULLIF(e.out, 0)
    FROM event e
    JOIN op o ON o.id = e.op_id
    LEFT JOIN node n ON n.id = e.node_id
    WHERE e.id BETWEEN ? AND ? AND e.ts_ns >= ? AND e.ts_ns < ? AND o.layer = 'graph'
        AND o.name NOT LIKE '%GraphLaunch' AND COALESCE(e.flags, 0) & 1 = 0 AND (?5 IS NULL OR e.pid = ?5)
        @THEIRS@ ORDER BY e.ts_ns LIMIT {MOST_EVENTS + 1}"""
_LAUNCHES = """
    SELECT n.name, e.process_id, e.pid, NULLIF(e.arg0, 0), SUM(e.weight), SUM(e.duration_ns * e.weight),
        MAX(e.duration_ns), MIN(e.ts_ns), MAX(e.ts_ns)
    FROM event e
    JOIN op o ON o.id = e.op_id
    LEFT JOIN node n ON n.id = e.node_id
    WHERE e.id BETWEEN ? AND ? AND e.ts_ns >= ? AND e.ts_ns < ? AND o.layer = 'graph'
        AND o.name LIKE '%GraphLaunch' AND COALESCE(e.flags, 0) & 1 = 0 AND (?5 IS NULL OR e.pid = ?5)
        @THEIRS@ GROUP BY n.name, e.process_id, e.pid, NULLIF(e.arg0, 0)"""

Row = tuple[Any, ...]


class GraphEvent(msgspec.Struct, frozen=True):
    """One call that makes, changes or ends a graph; handles None where the call does not tell."""

    at_ns: int
    node: str
    pid: int
    tid: int | None
    step: str
    op: str
    graph: int | None
    executable: int | None
    stream: int | None
    duration_ns: int | None
    ret: int | None


class Launched(msgspec.Struct, frozen=True):
    """One executable graph and its launches; all of a process whose graph is not known are one."""

    node: str
    pid: int
    executable: int | None
    launches: int
    per_s: float | None  # between its first and last
    mean_ns: int | None  # of the call, which returns before the graph has run
    max_ns: int | None
    first_ns: int
    last_ns: int


class GraphCounts(msgspec.Struct, frozen=True):
    """All calls of one process, by step."""

    node: str
    pid: int
    calls: dict[str, int]
    failed: int
    making_ns: int  # inside calls that capture and instantiate


class GraphsAnswer(msgspec.Struct, frozen=True):
    """Graphs within the window."""

    window: WindowAnswer
    recorded_ns: int
    processes: list[GraphCounts]
    launched: list[Launched]  # most launches first
    events: list[GraphEvent]  # in order of time
    more_events: bool
    losses: list[Loss]


def get_graphs(
    db: Path | None,
    wanted: Range,
    pid: int | None = None,
    node: str | None = None,
    whose: Whose = EVERYBODY,
) -> GraphsAnswer:
    """Every graph of the range, or of one process or tenant."""
    with Reader(db or last_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        events = sorted(_rows(reader, _EVENTS, when, pid, whose), key=lambda row: row[0])
        launches = _rows(reader, _LAUNCHES, when, pid, whose)
        with sense_made_of(reader):
            answer = GraphsAnswer(
                WindowAnswer(when.from_ns, when.to_ns),
                recorded_ns(reader, when),
                _counts(reader, when, Filters(pid=pid, **asdict(whose))),
                sorted((_launched(row) for row in _together(launches)), key=_most_launched_first),
                [_event(row) for row in events[:MOST_EVENTS]],
                len(events) > MOST_EVENTS,
                losses_within(reader, when.from_ns, when.to_ns),
            )
            return checked(answer)


def _rows(reader: Reader, sql: str, when: TimeRange, pid: int | None, whose: Whose) -> list[Row]:
    theirs, parameters = only_theirs(whose, "e.process_id")
    sql = sql.replace("@THEIRS@", theirs)
    return [
        row
        for ids in reader.id_ranges(when.from_ns, when.to_ns)
        for row in reader.rows(sql, (*ids, when.from_ns, when.to_ns, pid, *parameters))
    ]


def step_of(op: str) -> str:
    return next((step for part, step in STEPS if part in op), "other")


def _event(row: Row) -> GraphEvent:
    at_ns, node, pid, tid, op, duration_ns, ret, stream, arg0, arg1, out = row
    step = step_of(op)
    graph = {"end_capture": out, "create": out, "instantiate": arg1, "update": arg1, "destroy": arg0}.get(
        step
    )
    executable = {"instantiate": out, "update": arg0, "upload": arg0, "destroy_executable": arg0}.get(step)
    return GraphEvent(at_ns, node or "?", pid, tid, step, op, graph, executable, stream, duration_ns, ret)


def _together(rows: list[Row]) -> list[Row]:
    """A graph that several recordings saw is one."""
    found: dict[Row, Row] = {}
    for row in rows:
        key, (launches, sum_ns, max_ns, first_ns, last_ns) = row[:4], row[4:]
        if key in found:
            launches0, sum0, max0, first0, last0 = found[key][4:]
            launches, sum_ns, max_ns = launches + launches0, _sum(sum_ns, sum0), _most(max_ns, max0)
            first_ns, last_ns = min(first_ns, first0), max(last_ns, last0)
        found[key] = (*key, launches, sum_ns, max_ns, first_ns, last_ns)
    return list(found.values())


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


def _most(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _most_launched_first(each: Launched) -> tuple[int, str, int]:
    return -each.launches, each.node, each.pid


def _launched(row: Row) -> Launched:
    node, _, pid, executable, launches, sum_ns, max_ns, first_ns, last_ns = row
    rate = (launches - 1) * 1e9 / (last_ns - first_ns) if last_ns > first_ns else None
    mean_ns = round(sum_ns / launches) if sum_ns is not None and launches else None
    return Launched(node or "?", pid, executable, launches, rate, mean_ns, max_ns, first_ns, last_ns)


def _counts(reader: Reader, when: TimeRange, filters: Filters) -> list[GraphCounts]:
    found: dict[tuple[int, str, int], list[OperationStats]] = {}
    for process, stats in stats_by_process(reader, when, filters).items():
        for each in stats:  # those without a row of their own are told by node and PID
            if each.layer == "graph" and each.pids:
                found.setdefault((process, each.node, each.pids[0]), []).append(each)
    return sorted(map(_added, found.values()), key=lambda each: (each.node, each.pid))


def _added(graphs: list[OperationStats]) -> GraphCounts:
    # The runtime's functions call the driver's: where a process has both, only the first are its own.
    stats = [each for each in graphs if each.op.startswith("cuda")] or graphs
    calls: dict[str, int] = {}
    making_ns = 0
    for each in stats:
        step = step_of(each.op)
        calls[step] = calls.get(step, 0) + each.count
        making_ns += each.sum_ns if step in ("end_capture", "instantiate") else 0
    failed = sum(each.errors for each in stats)
    return GraphCounts(stats[0].node, stats[0].pids[0], calls, failed, making_ns)
