"""What was launched: each kernel of each process, how often, and how long launching took.

From stored launches, each standing for as many as its weight says. Durations are the
host's: how long the launch call took, not the kernel. Percentiles are within a
hundredth. A launch whose kernel has no name is counted, and its share said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from ingero.model.report import Loss
from ingero.serve.answers.missing import losses_within
from ingero.serve.answers.operations import Filters, conditions, recorded_ns
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader

# Three digits of a duration, in SQL: groups few enough to add up here.
_ROUNDED = "CASE " + " ".join(
    f"WHEN duration_ns < {1000 * step} THEN duration_ns / {step} * {step}"
    for step in (10**digits for digits in range(13))
) + " ELSE duration_ns END"  # fmt: skip
NESTED = 1  # event.flags of a call made inside another


@dataclass(frozen=True, slots=True)
class KernelStats:
    """One kernel of one process."""

    node: str
    pid: int | None
    comm: str | None
    kernel: str | None  # in full; a place where it has no name; None: nothing is known
    short: str | None
    named: bool
    launches: int
    share: float  # of the process's launches
    p50_ns: int | None
    max_ns: int | None


class KernelsAnswer(msgspec.Struct, frozen=True):
    """Kernels within the window, most launches first."""

    from_ns: int
    to_ns: int
    counted_from: str  # now, last-record, recording, given
    recorded_ns: int
    launches: int
    named_share: float | None  # of launches; None where there were none
    kernels: list[KernelStats]
    losses: list[Loss]


def kernel_stats(reader: Reader, wanted: TimeRange, filters: Filters, limit: int) -> KernelsAnswer:
    """Statistics by process and kernel; at most `limit` of them."""
    groups: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
    for *key, rounded_ns, count, longest_ns in _rows(reader, wanted, filters):
        groups.setdefault(tuple(key), []).append((rounded_ns, count, longest_ns))
    totals: dict[Any, int] = {}
    for (*who, _), spread in groups.items():
        totals[tuple(who)] = totals.get(tuple(who), 0) + sum(count for _, count, _ in spread)
    kernels = {row[0]: row[1:] for row in reader.rows("SELECT id, name, short, known FROM kernel")}
    comms = dict(reader.rows("SELECT id, comm FROM process"))
    nodes = dict(reader.rows("SELECT id, name FROM node"))
    found = [
        _stats(
            (nodes.get(who[0]) or "?", who[2], comms.get(who[1])),
            kernels.get(kernel_id), spread, totals[tuple(who)],
        )
        for (*who, kernel_id), spread in groups.items()
    ]  # fmt: skip
    found.sort(key=lambda each: (-each.launches, each.node, each.pid or 0, each.kernel or ""))
    launches = sum(each.launches for each in found)
    return KernelsAnswer(
        wanted.from_ns,
        wanted.to_ns,
        wanted.anchor,
        recorded_ns(reader, wanted),
        launches,
        sum(each.launches for each in found if each.named) / launches if launches else None,
        found[:limit],
        losses_within(reader, wanted.from_ns, wanted.to_ns),
    )


def _rows(reader: Reader, wanted: TimeRange, filters: Filters) -> list[tuple[Any, ...]]:
    """(node_id, process_id, pid, kernel_id, rounded duration, launches, longest)."""
    where, parameters = conditions(reader, filters)
    rows: list[tuple[Any, ...]] = []
    for first, last in reader.id_ranges(wanted.from_ns, wanted.to_ns):
        rows += reader.rows(
            f"SELECT node_id, process_id, pid, kernel_id, {_ROUNDED} AS rounded, SUM(weight),"
            " MAX(duration_ns)"
            " FROM event WHERE id BETWEEN ? AND ? AND ts_ns >= ? AND ts_ns < ?"
            " AND op_id IN (SELECT id FROM op WHERE kind = 'launch' AND name NOT LIKE '%HostFunc%')"
            f" AND flags & {NESTED} = 0{where} GROUP BY node_id, process_id, pid, kernel_id, rounded",
            (first, last, wanted.from_ns, wanted.to_ns, *parameters),
        )
    return rows


def _stats(
    who: tuple[str, int | None, str | None],
    kernel: tuple[Any, ...] | None,
    spread: list[tuple[int, int, int]],
    of_process: int,
) -> KernelStats:
    name, short, known = kernel or (None, None, 0)
    launches = sum(count for _, count, _ in spread)
    node, pid, comm = who
    return KernelStats(
        node=node,
        pid=pid,
        comm=comm,
        kernel=name,
        short=short,
        named=bool(known),
        launches=launches,
        share=launches / of_process if of_process else 0.0,
        p50_ns=_median(spread, launches),
        max_ns=max((longest for _, _, longest in spread if longest is not None), default=None),
    )


def _median(spread: list[tuple[int, int, int]], launches: int) -> int | None:
    seen = 0
    for duration_ns, count, _ in sorted(each for each in spread if each[0] is not None):
        seen += count
        if 2 * seen >= launches:
            return duration_ns
    return None
