"""Per-operation statistics of each node: how often, how long, how much of the wall time.

Counts and sums are exact; percentiles come from merged histograms and are off by
at most one slot (an eighth). Whole minutes are read from the roll-up, the edges
and what is not rolled up yet from the seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingero.errors import StoreError, UsageError
from ingero.model import histogram
from ingero.serve.answers.whose import Whose, only_theirs
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.units import MINUTE

SHARES = (0.50, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which processes and operations; None means all."""

    pid: int | None = None
    op: str | None = None
    container: str | None = None  # as in whose.Whose
    pod: str | None = None
    namespace: str | None = None
    job: str | None = None
    user: str | None = None

    @property
    def whose(self) -> Whose:
        return Whose(self.container, self.pod, self.namespace, self.job, self.user)


@dataclass(frozen=True, slots=True)
class OperationStats:
    """One operation of one node over the range; per process where asked for."""

    node: str
    layer: str
    op: str
    pids: tuple[int, ...]
    count: int
    exact: bool
    count_error: int
    p50_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    sum_ns: int
    wall_share: float | None  # time inside it by the node's recorded time; above 1 with several threads
    bytes: int | None
    errors: int


@dataclass(frozen=True, slots=True)
class OperationsAnswer:
    from_ns: int
    to_ns: int
    recorded_ns: int  # how much of the range was recorded
    operations: list[OperationStats]  # most time first


_COLUMNS = "process_id, op_id, pid, count, exact, count_error, sum_ns, max_ns, bytes, errors, slots, node_id"
NODE = 11
MOST_CALLS = MINUTE  # one a nanosecond
Row = tuple[Any, ...]
Who = Callable[[Row], tuple[Any, ...]]


def operation_stats(
    reader: Reader, wanted: TimeRange, filters: Filters | None = None, per_process: bool = False
) -> OperationsAnswer:
    """Statistics of every operation in the range, the one with most time first."""
    found = _found(reader, wanted, filters or Filters(), _process if per_process else _everybody)
    operations = sorted((each.stats for each in found), key=_most_time_first)
    return OperationsAnswer(wanted.from_ns, wanted.to_ns, recorded_ns(reader, wanted), operations)


def stats_by_process(
    reader: Reader, wanted: TimeRange, filters: Filters | None = None
) -> dict[int, list[OperationStats]]:
    """The same for each process by its row in `process`: a PID may have been several."""
    by_process: dict[int, list[OperationStats]] = {}
    for each in _found(reader, wanted, filters or Filters(), _process):
        by_process.setdefault(each.key[2] or 0, []).append(each.stats)
    return {each: sorted(stats, key=_most_time_first) for each, stats in by_process.items()}


@dataclass(frozen=True, slots=True)
class GroupCalls:
    """What a group of processes called, and who they are: the ids of those with calls, by node."""

    operations: list[OperationStats] = field(default_factory=list)
    processes: dict[str, set[int]] = field(default_factory=dict)


def stats_by_group(
    reader: Reader, wanted: TimeRange, filters: Filters, group_of: Callable[[int], str]
) -> dict[str, GroupCalls]:
    """The same for groups of processes; a process that has no row of its own is number 0."""
    groups: dict[str, GroupCalls] = {}
    for each in _found(reader, wanted, filters, lambda row: (group_of(row[0] or 0),)):
        group = groups.setdefault(each.key[2], GroupCalls())
        group.operations.append(each.stats)
        group.processes.setdefault(each.stats.node, set()).update(each.processes)
    for group in groups.values():
        group.operations.sort(key=_most_time_first)
    return groups


@dataclass(frozen=True, slots=True)
class Totals:
    """One operation of one process, added up, with its histogram."""

    count: int
    errors: int
    bytes: int | None
    sum_ns: int
    max_ns: int | None
    slots: NDArray[np.uint64]


def totals_by_process(
    reader: Reader, wanted: TimeRange, filters: Filters
) -> list[tuple[int | None, str, str, str, Totals]]:
    """(process, layer, operation, kind, totals) of everything in the range."""
    where, parameters = conditions(reader, filters)
    rows = _rows(reader, wanted, where, parameters)
    names = {row[0]: row[1:] for row in reader.rows("SELECT id, layer, name, kind FROM op")}
    groups: dict[tuple[Any, ...], int] = {}
    group_of = np.array([groups.setdefault((row[0], row[1]), len(groups)) for row in rows], np.int64)
    slots = _slots([row[10] for row in rows], group_of, len(groups), reader)
    found = []
    for (process_id, op_id), number in groups.items():
        mine = [rows[at] for at in np.flatnonzero(group_of == number).tolist()]
        _, _, _, counts, _, _, sums, highs, sizes, errors, _, _ = zip(*mine, strict=True)
        known = list(_known(sizes))
        totals = Totals(
            sum(counts), sum(errors), sum(known) if known else None, sum(sums),
            max(_known(highs), default=None), slots[number],
        )  # fmt: skip
        found.append((process_id, *names.get(op_id, ("", "?", "other")), totals))
    return found


class _Found(NamedTuple):
    key: tuple[Any, ...]
    processes: set[int]  # their ids; 0: without a row of its own
    stats: OperationStats


def _everybody(_: Row) -> tuple[Any, ...]:
    return ()


def _process(row: Row) -> tuple[Any, ...]:
    """A process without a row of its own is told by its PID."""
    return row[0] or None, None if row[0] else row[2]


def _found(reader: Reader, wanted: TimeRange, filters: Filters, who: Who) -> list[_Found]:
    """By node and operation, and then by who it was."""
    where, parameters = conditions(reader, filters)
    rows = _rows(reader, wanted, where, parameters)
    ops = {row[0]: (row[1], row[2]) for row in reader.rows("SELECT id, layer, name FROM op")}
    nodes = dict(reader.rows("SELECT id, name FROM node"))
    recorded = {node_id: recorded_ns(reader, wanted, node_id) for node_id in {row[NODE] for row in rows}}
    found = []
    for key, members, slots in _merged(rows, who, reader):
        name = (nodes.get(key[0]) or "?", *ops.get(key[1], ("", "?")))
        stats = _stats(name, members, slots, recorded[key[0]])
        found.append(_Found(key, {row[0] or 0 for row in members}, stats))
    return found


def _most_time_first(each: OperationStats) -> tuple[Any, ...]:
    return (-each.sum_ns, each.layer, each.op, each.node, each.pids)


def _rows(
    reader: Reader, wanted: TimeRange, where: str, parameters: tuple[Any, ...]
) -> list[tuple[Any, ...]]:
    """Of one node other minutes may be rolled up, and other seconds gone, than of the next."""
    alike: dict[tuple[int, int, int], list[int]] = {}
    for (node_id,) in reader.rows("SELECT id FROM node ORDER BY id"):
        alike.setdefault(_edges(reader, wanted, node_id), []).append(node_id)
    return [
        _possible(reader, row)
        for edges, nodes in alike.items()
        for row in _rows_of(
            reader, wanted, edges, f"{where} AND node_id IN ({', '.join(map(str, nodes))})", parameters
        )
    ]


def _possible(reader: Reader, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row is of a second or a minute: more calls than there are nanoseconds nobody made."""
    if isinstance(row[3], int) and not 0 <= row[3] <= MOST_CALLS:
        raise StoreError(
            f"{reader.path} holds values that cannot be right: {row[3]:,} calls of one operation by"
            f" process {row[2]} in a minute or less",
            hint="The file is damaged, or was written by a version with wrong estimates.",
        )
    return row


def _edges(reader: Reader, wanted: TimeRange, node_id: int) -> tuple[int, int, int]:
    """Where to begin, and from when to when whole minutes answer."""
    oldest = oldest_second_ns(reader, node_id)
    from_ns, to_ns = wanted.from_ns, wanted.to_ns
    if oldest is None or from_ns < oldest:  # the seconds are gone: answer in whole minutes
        from_ns = from_ns // MINUTE * MINUTE
    first = -(-from_ns // MINUTE) * MINUTE
    last = max(first, to_ns // MINUTE * MINUTE)
    if oldest is not None and oldest // MINUTE * MINUTE > from_ns:
        first = from_ns
    return from_ns, first, last


def _rows_of(
    reader: Reader, wanted: TimeRange, edges: tuple[int, int, int], where: str, parameters: tuple[Any, ...]
) -> list[tuple[Any, ...]]:
    (from_ns, first, last), to_ns = edges, wanted.to_ns
    rolled = "id <= (SELECT rolled_id FROM node WHERE node.id = node_id)"
    seconds = f"SELECT {_COLUMNS} FROM operation_second WHERE start_ns >= ? AND start_ns < ?{where}"
    minutes = f"SELECT {_COLUMNS} FROM operation_minute WHERE start_ns >= ? AND start_ns < ?{where}"
    if to_ns <= first:
        return reader.rows(seconds, (from_ns, to_ns, *parameters))
    return [
        *reader.rows(f"{seconds} AND {rolled}", (from_ns, first, *parameters)),
        *reader.rows(minutes, (first, last, *parameters)),
        *reader.rows(f"{seconds} AND {rolled}", (last, to_ns, *parameters)),
        *reader.rows(f"{seconds} AND NOT {rolled}", (from_ns, to_ns, *parameters)),
    ]


def oldest_second_ns(reader: Reader, node_id: int) -> int | None:
    """From when on a node's seconds are there; before that only minutes are."""
    rows = reader.rows(
        "SELECT start_ns FROM operation_second WHERE node_id = ? ORDER BY start_ns LIMIT 1", (node_id,)
    )
    return rows[0][0] if rows else None


def conditions(reader: Reader, filters: Filters) -> tuple[str, tuple[Any, ...]]:
    """SQL that follows a WHERE, for tables with pid, op_id and process_id."""
    parts: list[str] = []
    parameters: list[Any] = []
    if filters.pid is not None:
        parts.append("pid = ?")
        parameters.append(filters.pid)
    if filters.op is not None:
        parts.append("op_id IN (SELECT id FROM op WHERE name = ?)")
        parameters.append(_known_op(reader, filters.op))
    theirs, whose_parameters = only_theirs(filters.whose)
    return "".join(f" AND {part}" for part in parts) + theirs, (*parameters, *whose_parameters)


def _known_op(reader: Reader, op: str) -> str:
    names: list[str] = [row[0] for row in reader.rows("SELECT name FROM op")]
    if op in names:
        return op
    alike = next((name for name in names if name.lower() == op.lower()), None)
    if alike is None:
        raise UsageError(
            f"there is no operation {op!r} in this recording", hint="See `ingero query` without --op."
        )
    return alike


def recorded_ns(reader: Reader, wanted: TimeRange, node_id: int | None = None) -> int:
    """How much of the range was recorded, by any node or by one."""
    spans = sorted(
        (max(r.started_ns, wanted.from_ns), min(r.last_ns, wanted.to_ns))
        for r in reader.recordings()
        if node_id in (None, r.node_id)
    )
    total, reached = 0, 0
    for start, end in spans:  # several nodes may have recorded the same time
        start = max(start, reached)
        if end > start:
            total, reached = total + end - start, end
    return total


def _merged(
    rows: list[Row], who: Who, reader: Reader
) -> Iterator[tuple[tuple[Any, ...], list[Row], NDArray[np.uint64]]]:
    """(node, operation, and who it was), its rows and their histogram."""
    groups: dict[tuple[Any, ...], int] = {}
    members: list[list[Row]] = []
    group_of = np.empty(len(rows), np.int64)
    for at, row in enumerate(rows):
        number = groups.setdefault((row[NODE], row[1], *who(row)), len(members))
        if number == len(members):
            members.append([])
        members[number].append(row)
        group_of[at] = number
    slots = _slots([row[10] for row in rows], group_of, len(members), reader)
    yield from ((key, members[number], slots[number]) for key, number in groups.items())


def _slots(blobs: list[bytes], group_of: NDArray[np.int64], count: int, reader: Reader) -> NDArray[np.uint64]:
    try:
        return histogram.merge(blobs, group_of, count)
    except (ValueError, TypeError, IndexError) as error:
        raise StoreError(
            f"{reader.path} holds a broken histogram: {error}", hint="The file is damaged."
        ) from error


def _stats(
    name: tuple[str, str, str], members: list[tuple[Any, ...]], slots: NDArray[np.uint64], recorded: int
) -> OperationStats:
    _, _, pids, counts, exact, error, sums, highs, sizes, errors, _, _ = zip(*members, strict=True)
    max_ns = max(_known(highs), default=None)
    p50, p95, p99 = histogram.percentiles(slots, SHARES, max_ns=max_ns)
    known_sizes = list(_known(sizes))
    sum_ns = sum(sums)
    return OperationStats(
        node=name[0],
        layer=name[1],
        op=name[2],
        pids=tuple(sorted(set(pids))),
        count=sum(counts),
        exact=all(exact),
        count_error=sum(error),
        p50_ns=p50,
        p95_ns=p95,
        p99_ns=p99,
        max_ns=max_ns,
        sum_ns=sum_ns,
        wall_share=sum_ns / recorded if recorded else None,
        bytes=sum(known_sizes) if known_sizes else None,
        errors=sum(errors),
    )


def _known(values: Iterable[int | None]) -> Iterable[int]:
    return (value for value in values if value is not None)
