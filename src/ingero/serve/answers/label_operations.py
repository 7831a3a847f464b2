"""Statistics by operation while a label held, for each of its values, or for each tenant.

From the calls stored one by one, because steps are shorter than the seconds sums are
kept for. A row that stands for several calls stands for those since the one before it:
they are spread over that time, less what the thread is known to have spent otherwise,
and how far a count may be off for that is said with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from ingero.errors import StoreError
from ingero.model.layout import Why
from ingero.serve.answers.label_time import Floats, Ints, Placed, recorded
from ingero.serve.answers.labels import Held, Labels, Span, held_by_all, union_ns
from ingero.serve.answers.operations import (
    SHARES,
    Filters,
    GroupCalls,
    OperationStats,
    conditions,
    stats_by_group,
)
from ingero.serve.answers.whose import UNNAMED, names_by
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader

MOST_ROWS = 3_000_000
FOLLOWING = 256  # samples looked through for one of each core
SAMPLED = int(Why.WHY_SAMPLE) | int(Why.WHY_ALL)
# A call that failed took and moved nothing.
_MOVED = f"COALESCE(IIF(why & {int(Why.WHY_ERROR)}, 0 * bytes, bytes), -1)"
_COLUMNS = f"process_id, op_id, pid, ts_ns, duration_ns, weight, {_MOVED}, why, tid"
TS, TOOK, WEIGHT, BYTES, WHY, TID = range(3, 9)


class LabelValue(msgspec.Struct, frozen=True):
    """One value of a label, or a tenant: how long it held, and the operations meanwhile, most time first."""

    value: str
    held_ns: int  # in all, where it held for several processes or several times at once or not; of a
    # tenant: while processes of theirs with calls were there
    pids: tuple[int, ...]
    operations: list[OperationStats]  # of each node by itself; their share is of the time it held there


@dataclass(slots=True)
class _Sums:
    """One operation while one value held."""

    pids: set[int] = field(default_factory=set)
    count: float = 0
    error: float = 0
    sum_ns: float = 0
    bytes: float | None = None
    errors: int = 0
    took: list[Ints] = field(default_factory=list)
    weights: list[Ints] = field(default_factory=list)


def values_of(
    reader: Reader, when: TimeRange, filters: Filters, spans: Held, limit: int, together: bool = False
) -> list[LabelValue]:
    """Longest held first, at most `limit`; `together`: all values as one."""
    if together:
        spans = {process: list(_joined(each)) for process, each in spans.items()}
    nodes = dict(reader.rows("SELECT p.id, n.name FROM process p JOIN node n ON n.id = p.node_id"))
    by_value: dict[str, dict[str, list[Span]]] = {}  # value, node
    for process_id, each in spans.items():
        for span in each:
            mine = by_value.setdefault(span.value, {})
            mine.setdefault(nodes[process_id], []).append(span)
    held_ns = {value: union_ns(chain.from_iterable(each.values())) for value, each in by_value.items()}
    shown = sorted(held_ns, key=lambda value: (-held_ns[value], value))[:limit]
    sums = _sums(reader, when, filters, _only(spans, set(shown)), nodes)
    ops = {row[0]: (row[1], row[2]) for row in reader.rows("SELECT id, layer, name FROM op")}
    found = []
    for value in shown:
        there_ns = {node: union_ns(each) for node, each in by_value[value].items()}
        operations = [
            _stats((node, *ops[op]), each, there_ns[node]) for (node, op), each in sums.get(value, {}).items()
        ]
        operations.sort(key=lambda each: (-each.sum_ns, each.layer, each.op, each.node))
        pids = sorted({pid for each in operations for pid in each.pids})
        found.append(LabelValue(value, held_ns[value], tuple(pids), operations))
    return found


def _joined(spans: list[Span]) -> Iterator[Span]:
    """Those without a pause between them as one, whatever their values."""
    begun: int | None = None
    for at, span in enumerate(spans):
        begun = span.start_ns if begun is None else begun
        if at + 1 == len(spans) or spans[at + 1].start_ns > span.end_ns:
            yield Span(begun, span.end_ns, "")
            begun = None


def _only(spans: Held, shown: set[str]) -> Held:
    return {process: [span for span in each if span.value in shown] for process, each in spans.items()}


def _sums(
    reader: Reader, when: TimeRange, filters: Filters, spans: Held, nodes: dict[int, str]
) -> dict[str, dict[tuple[str, int], _Sums]]:
    """By value, and by node and operation."""
    found: dict[str, dict[tuple[str, int], _Sums]] = {}
    known: dict[tuple[int, int], Placed] = {}
    cores = max((each.cores or 1 for each in reader.recordings()), default=1)
    begun = dict(reader.rows("SELECT id, start_ns FROM process"))
    for process_id, op_id, pid, rows in _rows(reader, when, filters, spans):
        tids, counts = np.unique(rows[:, TID], return_counts=True)
        who = (int(tids[counts.argmax()]), process_id)
        if who not in known:
            known[who] = recorded(reader, when, *who)
        from_ns = max(when.from_ns, begun.get(process_id) or 0)  # a process made no calls before its begin
        for value, part in _split(rows, spans[process_id], from_ns, known[who], cores):
            mine = found.setdefault(value, {})
            _add(mine.setdefault((nodes[process_id], op_id), _Sums()), pid, part)
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    """What falls into the spans of one value: rows, and the calls others stand for."""

    rows: Ints
    calls: float
    error: float  # of the calls
    ns: float
    bytes: float


def _add(into: _Sums, pid: int, part: _Part) -> None:
    rows = part.rows
    into.pids.add(pid)
    into.count += len(rows) + part.calls
    into.sum_ns += float(rows[:, TOOK].sum()) + part.ns
    known = rows[rows[:, BYTES] >= 0, BYTES]
    if len(known) or part.bytes:
        into.bytes = (into.bytes or 0) + float(known.sum()) + part.bytes
    into.errors += int((rows[:, WHY] & int(Why.WHY_ERROR) > 0).sum())
    into.error += part.error
    into.took.append(rows[:, TOOK])
    into.weights.append(rows[:, WEIGHT])


def _rows(
    reader: Reader, when: TimeRange, filters: Filters, spans: Held
) -> Iterator[tuple[int, int, int, Ints]]:
    """Process, operation, PID and calls in order of time."""
    where, parameters = conditions(reader, filters)
    listed = ", ".join(map(str, map(int, spans)))
    rows: list[tuple[Any, ...]] = []
    for first, last in reader.id_ranges(when.from_ns, when.to_ns):
        rows += reader.rows(
            f"SELECT {_COLUMNS} FROM event WHERE id BETWEEN ? AND ? AND process_id IN ({listed or 'NULL'})"
            " AND ts_ns >= ? AND ts_ns < ? AND duration_ns IS NOT NULL AND op_id IN"
            f" (SELECT id FROM op WHERE layer IN ('runtime', 'driver', 'graph', 'nccl')){where} LIMIT ?",
            (first, last, when.from_ns, when.to_ns, *parameters, MOST_ROWS + 1 - len(rows)),
        )
    if len(rows) > MOST_ROWS:
        raise StoreError(
            f"more than {MOST_ROWS:,} calls are stored of that time",
            hint="Ask about less, with --since or --pid.",
        )
    table = np.array(rows, np.int64).reshape(-1, 9)
    table = table[np.lexsort((table[:, TS], table[:, 1], table[:, 0]))]
    changes = np.flatnonzero(np.any(np.diff(table[:, :2], axis=0) != 0, axis=1)) + 1
    for part in np.split(table, changes):
        if len(part):
            yield int(part[0, 0]), int(part[0, 1]), int(part[0, 2]), part


def _split(
    rows: Ints, spans: list[Span], from_ns: int, placed: Placed, cores: int
) -> Iterator[tuple[str, _Part]]:
    """The calls of one operation by the value that held."""
    if not spans:
        return
    bounds = np.array([span[:2] for span in spans], np.int64)
    first, last = np.searchsorted(rows[:, TS], bounds.T)
    stood_for = _StoodFor.by(rows, from_ns, placed, cores)
    calls, ns, sizes = (stood_for.within(bounds, column) for column in (WEIGHT, TOOK, BYTES))
    errors = stood_for.uncertain(bounds)
    for at in np.flatnonzero((last > first) | (calls >= 0.5)).tolist():
        here = (float(each[at]) for each in (calls, errors, ns, sizes))
        yield spans[at].value, _Part(rows[first[at] : last[at]], *here)


@dataclass(frozen=True, slots=True)
class _StoodFor:
    """Calls that rows stand for besides themselves, each since the sample before it."""

    samples: Ints
    edges: Ints  # when each sample was taken, and one before the first
    placed: Placed
    cores: int

    @classmethod
    def by(cls, rows: Ints, from_ns: int, placed: Placed, cores: int) -> _StoodFor:
        samples = rows[(rows[:, WHY] & SAMPLED > 0) | (rows[:, WEIGHT] > 1)]
        begin = min(from_ns, int(samples[0, TS]) - 1) if len(samples) else from_ns
        return cls(samples, np.concatenate([[begin], samples[:, TS]]).astype(np.int64), placed, cores)

    def within(self, bounds: Ints, column: int) -> Floats:
        """How many of them, or how much, in each span."""
        begun, over = self._until(bounds, column).T
        return np.asarray(over - begun)

    def _until(self, bounds: Ints, column: int) -> Floats:
        each = 1 if column == WEIGHT else np.maximum(self.samples[:, column], 0)
        so_far = np.concatenate([[0.0], np.cumsum((self.samples[:, WEIGHT] - 1) * each)])
        found = np.interp(self._open(bounds.ravel()), self._open(self.edges), so_far)
        return np.asarray(found).reshape(-1, 2)

    def _open(self, instants: Ints) -> Floats:
        """Time the thread had for such calls: it was in no other, and did not wait."""
        return np.asarray(instants - self.edges[0] - self.placed.covered(instants))

    def uncertain(self, bounds: Ints) -> Floats:
        """How far the calls of each span may be off."""
        extra = self.samples[:, WEIGHT] - 1
        if not extra.any():
            return np.zeros(len(bounds))
        return np.array([self._cut(start, extra) + self._cut(end, extra) for start, end in bounds.tolist()])

    def _cut(self, at_ns: int, extra: Ints) -> float:
        """Every core samples its own calls: those of the next sample of each may lie on either side."""
        if at_ns <= self.edges[0]:
            return 0.0
        first = int(np.searchsorted(self.samples[:, TS], at_ns))
        return float(np.sort(extra[first : first + FOLLOWING])[-self.cores :].sum())


def _stats(name: tuple[str, str, str], sums: _Sums, held_ns: int) -> OperationStats:
    took, weights = np.concatenate(sums.took), np.concatenate(sums.weights)
    p50, p95, p99 = _percentiles(took, weights)
    return OperationStats(
        node=name[0],
        layer=name[1],
        op=name[2],
        pids=tuple(sorted(sums.pids)),
        count=round(sums.count),
        exact=sums.error < 0.5,
        count_error=round(sums.error),
        p50_ns=p50,
        p95_ns=p95,
        p99_ns=p99,
        max_ns=int(took.max()) if len(took) else None,
        sum_ns=round(sums.sum_ns),
        wall_share=sums.sum_ns / held_ns if held_ns else None,
        bytes=None if sums.bytes is None else round(sums.bytes),
        errors=sums.errors,
    )


def _percentiles(took: Ints, weights: Ints) -> list[int | None]:
    if not len(took):
        return [None] * len(SHARES)
    order = np.argsort(took)
    so_far = np.cumsum(weights[order])
    at = np.searchsorted(so_far, [share * so_far[-1] for share in SHARES])
    return [int(took[order][min(each, len(took) - 1)]) for each in at]


# For each tenant: pods, namespaces, jobs, users, containers or nodes.
#
# Counts are those of all calls, as in the statistics of everybody. While a label held, and only then, they
# come from the calls stored one by one, as those of labels do.

_LIVES = "SELECT id, node_id, COALESCE(start_ns, first_seen_ns, 0), end_ns FROM process"


def values_by_tenant(
    reader: Reader, when: TimeRange, filters: Filters, labels: Labels, by: str, limit: int
) -> list[LabelValue]:
    """One for each tenant with calls, the one that was there longest first; at most `limit`."""
    names = names_by(reader, by)
    if labels.wanted:
        spans = held_by_all(reader, when, labels.wanted)
        named = {
            number: [each._replace(value=names.get(number, UNNAMED)) for each in mine]
            for number, mine in spans.items()
        }
        return values_of(reader, when, filters, named, limit)
    there = _while_there(reader, when)
    groups = stats_by_group(reader, when, filters, lambda number: names.get(number, UNNAMED))
    found = [_value(name, group, there) for name, group in groups.items()]
    return sorted(found, key=lambda each: (-each.held_ns, each.value))[:limit]


def _value(name: str, group: GroupCalls, there: dict[int, list[Span]]) -> LabelValue:
    """Shares are of the time that processes of theirs were on the node."""
    spans = {
        node: [each for number in ids for each in there.get(number, ())]
        for node, ids in group.processes.items()
    }
    on_node = {node: union_ns(each) for node, each in spans.items()}
    operations = [
        replace(each, wall_share=each.sum_ns / on_node[each.node] if on_node[each.node] else None)
        for each in group.operations
    ]
    pids = sorted({pid for each in operations for pid in each.pids})
    return LabelValue(name, union_ns(chain.from_iterable(spans.values())), tuple(pids), operations)


def _while_there(reader: Reader, when: TimeRange) -> dict[int, list[Span]]:
    """When each process was on its node, of the time that was recorded there."""
    recorded: dict[int, list[tuple[int, int]]] = {}
    for each in reader.recordings():
        span = max(each.started_ns, when.from_ns), min(each.last_ns, when.to_ns)
        recorded.setdefault(each.node_id, []).append(span)
    found = {}
    for number, node_id, start_ns, end_ns in reader.rows(_LIVES):
        parts = (
            Span(max(first, start_ns), last if end_ns is None else min(last, end_ns), "")
            for first, last in recorded.get(node_id, ())
        )
        found[number] = [each for each in parts if each.start_ns < each.end_ns]
    return found
