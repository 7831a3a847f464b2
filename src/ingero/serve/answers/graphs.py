"""CUDA graphs: how they came to be, and how often each is launched.

Handles are addresses in the job: one that was destroyed may name another graph later.
Counts by process come from the histograms and are those of all calls; what is said of
one graph comes from the stored rows. The driver's calls inside the runtime's are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ingero.model.report import Loss
from ingero.serve.answers.losses import losses_within
from ingero.serve.answers.operations import recorded_ns, stats_by_process
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.sense import checked, sense_made_of
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store.location import default_path
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
_EVENTS = """
    SELECT e.ts_ns, e.pid, e.tid, o.name, e.duration_ns, e.ret, e.stream, e.arg0, e.arg1, e.out
    FROM event e
    JOIN op o ON o.id = e.op_id
    WHERE e.id BETWEEN ? AND ? AND e.ts_ns >= ? AND e.ts_ns < ? AND o.layer = 'graph'
        AND o.name NOT LIKE '%GraphLaunch' AND COALESCE(e.flags, 0) & 1 = 0 AND (?5 IS NULL OR e.pid = ?5)
    ORDER BY e.ts_ns LIMIT ?6"""
_LAUNCHES = """
    SELECT e.pid, e.arg0, SUM(e.weight), SUM(e.duration_ns * e.weight), MAX(e.duration_ns), MIN(e.ts_ns),
        MAX(e.ts_ns)
    FROM event e
    JOIN op o ON o.id = e.op_id
    WHERE e.id BETWEEN ? AND ? AND e.ts_ns >= ? AND e.ts_ns < ? AND o.layer = 'graph'
        AND o.name LIKE '%GraphLaunch' AND COALESCE(e.flags, 0) & 1 = 0 AND (?5 IS NULL OR e.pid = ?5)
    GROUP BY e.pid, e.arg0"""


class GraphEvent(msgspec.Struct, frozen=True):
    """One call that makes, changes or ends a graph; handles None where the call does not tell."""

    at_ns: int
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
    """One executable graph and its launches."""

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
    db: Path | None, wanted: Range, pid: int | None = None, node: str | None = None
) -> GraphsAnswer:
    """Every graph of the range, or of one process."""
    with Reader(db or default_path(), node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end)
        ranges = reader.id_ranges(when.from_ns, when.to_ns)
        events = [
            row for at in ranges for row in reader.rows(_EVENTS, _asked(at, when, pid, MOST_EVENTS + 1))
        ]
        launches = [row for at in ranges for row in reader.rows(_LAUNCHES, _asked(at, when, pid))]
        with sense_made_of(reader):
            answer = GraphsAnswer(
                WindowAnswer(when.from_ns, when.to_ns),
                recorded_ns(reader, when),
                _counts(reader, when, pid),
                sorted((_launched(row) for row in launches), key=lambda each: -each.launches),
                [_event(row) for row in events[:MOST_EVENTS]],
                len(events) > MOST_EVENTS,
                losses_within(reader, when.from_ns, when.to_ns),
            )
            return checked(answer)


def _asked(ids: tuple[int, int], when: TimeRange, pid: int | None, *more: int) -> tuple[Any, ...]:
    return (*ids, when.from_ns, when.to_ns, pid, *more)


def step_of(op: str) -> str:
    return next((step for part, step in STEPS if part in op), "other")


def _event(row: tuple[Any, ...]) -> GraphEvent:
    at_ns, pid, tid, op, duration_ns, ret, stream, arg0, arg1, out = row
    step = step_of(op)
    graph = {"end_capture": out, "create": out, "instantiate": arg1, "update": arg1, "destroy": arg0}.get(
        step
    )
    executable = {"instantiate": out, "update": arg0, "upload": arg0, "destroy_executable": arg0}.get(step)
    return GraphEvent(at_ns, pid, tid, step, op, graph, executable, stream, duration_ns, ret)


def _launched(row: tuple[Any, ...]) -> Launched:
    pid, executable, launches, sum_ns, max_ns, first_ns, last_ns = row
    rate = (launches - 1) * 1e9 / (last_ns - first_ns) if last_ns > first_ns else None
    mean_ns = round(sum_ns / launches) if sum_ns is not None and launches else None
    return Launched(pid, executable, launches, rate, mean_ns, max_ns, first_ns, last_ns)


def _counts(reader: Reader, when: TimeRange, pid: int | None) -> list[GraphCounts]:
    found: dict[int, GraphCounts] = {}
    for stats in stats_by_process(reader, when).values():
        graphs = [each for each in stats if each.layer == "graph" and each.pids]
        # The runtime's functions call the driver's: where a process has both, only the first are its own.
        own = [each for each in graphs if each.op.startswith("cuda")] or graphs
        for each in own:
            if pid is not None and each.pids[0] != pid:
                continue
            before = found.get(each.pids[0]) or GraphCounts(each.pids[0], {}, 0, 0)
            step = step_of(each.op)
            making = each.sum_ns if step in ("end_capture", "instantiate") else 0
            calls = before.calls | {step: before.calls.get(step, 0) + each.count}
            found[before.pid] = GraphCounts(
                before.pid, calls, before.failed + each.errors, before.making_ns + making
            )
    return [found[each] for each in sorted(found)]
