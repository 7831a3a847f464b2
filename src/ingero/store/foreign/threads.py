"""Where threads were: the stored switches and calls of each, accounted by second.

Time outside every stored interval is `host_cpu` only where the aggregates say that
all switches of the minute were stored; else `unexplained`. What the aggregates know
and no row shows is moved into the seconds in proportion: time in calls that were not
stored (the runtime's or the driver's, whichever is more, as one contains the other)
from there to `cuda_cpu`, time off the core whose rows are missing to `unexplained`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingero.model.layout import Bucket, CallFlag
from ingero.model.window import BUCKET_NAMES, BUCKETS
from ingero.store.foreign.accounting import (
    MAX_SECONDS,
    REST,
    IntervalSums,
    Ints,
    Spans,
    account,
    classify,
    inside,
    spread,
)
from ingero.store.foreign.events import READ, SWITCH
from ingero.store.foreign.source import Conversion
from ingero.store.foreign.totals import Key, Total, fetch
from ingero.store.schema import BUCKET_COLUMNS, NODE_SHIFT, SEQ_MASK
from ingero.units import MINUTE

ALL_SECONDS = 2_000_000  # of all threads together
_NAMED = (int(Bucket.DISK_WAIT), int(Bucket.SLEEP), int(Bucket.UNEXPLAINED))


@dataclass(slots=True)
class _Node:
    """What one node's threads are accounted from; arrays are sorted by thread, then begin."""

    work: Conversion
    id: int
    switch_op: int
    switches: NDArray[np.void]
    calls: NDArray[np.void]
    reads: NDArray[np.void]
    totals: dict[Key, Total]
    layers: dict[int, str]  # of an operation
    counted: dict[tuple[int, int], list[int]]  # operations with totals, by minute and pid
    seconds_left: int = ALL_SECONDS
    feeders: set[int] = field(default_factory=set)  # pids


def threads(work: Conversion, aggregates: dict[int, dict[Key, Total]]) -> None:
    """Account every thread with stored switches or calls, the recording tool's own excepted."""
    left = ALL_SECONDS
    for node_id in work.nodes:
        node = _load(work, node_id, aggregates.get(node_id, {}))
        node.seconds_left = left
        own = {pid for at, pid in work.agents if at == node_id}
        callers = _main_callers(node)
        for tid in np.unique(np.concatenate((node.switches["tid"], node.calls["tid"]))).tolist():
            _thread(node, tid, own, callers)
        left = node.seconds_left


def _load(work: Conversion, node_id: int, known: dict[Key, Total]) -> _Node:
    first = node_id << NODE_SHIFT
    span = (first, first + SEQ_MASK)
    ops = {(s, o): i for s, o, i in work.out.execute("SELECT source, op, id FROM foreign_op")}
    layers = dict(work.out.execute("SELECT id, layer FROM op").fetchall())
    switch_op, read_op = ops[3, SWITCH], ops[5, READ]
    base = (
        "SELECT e.id, e.pid, e.tid, e.ts_ns, e.duration_ns, e.source, e.op_id, o.kind = 'sync' FROM event e"
        " JOIN op o ON o.id = e.op_id WHERE e.id BETWEEN ? AND ? AND e.pid IS NOT NULL AND e.tid IS NOT NULL"
        " AND e.duration_ns IS NOT NULL AND {} ORDER BY e.tid, e.ts_ns, e.duration_ns DESC"
    )
    names = ("id", "pid", "tid", "start", "took", "source", "op", "sync")
    switches, calls, reads = (
        fetch(work.out.execute(base.format(what), span), *names)
        for what in (f"e.op_id = {switch_op}", "e.source IN (1, 4, 8)", f"e.op_id = {read_op}")
    )
    counted: dict[tuple[int, int], list[int]] = {}
    for minute, op, pid in known:
        counted.setdefault((minute, pid), []).append(op)
    node = _Node(work, node_id, switch_op, switches, calls, reads, known, layers, counted)
    node.feeders |= set(calls["pid"].tolist())
    node.feeders |= {pid for (_, op, pid) in known if layers.get(op) in ("runtime", "driver", "graph")}
    node.feeders |= {pid for r in work.recordings if r.node_id == node_id for pid in r.pids}
    return node


def _main_callers(node: _Node) -> dict[int, int]:
    """The thread of each process that makes most of its calls: unseen ones are counted as its."""
    pairs, counts = np.unique(
        np.stack([node.calls["pid"], node.calls["tid"]], axis=1), axis=0, return_counts=True
    )
    found: dict[int, tuple[int, int]] = {}
    for (pid, tid), count in zip(pairs.tolist(), counts.tolist(), strict=True):
        if (count, -tid) > found.get(pid, (0, 0)):
            found[pid] = (count, -tid)
    return {pid: -tid for pid, (_, tid) in found.items()}


def _of(rows: NDArray[np.void], tid: int) -> NDArray[np.void]:
    low, high = np.searchsorted(rows["tid"], (tid, tid + 1))
    return rows[low:high]


def _thread(node: _Node, tid: int, own: set[int], callers: dict[int, int]) -> None:
    switches, calls, reads = _of(node.switches, tid), _of(node.calls, tid), _of(node.reads, tid)
    pid = int((calls if len(calls) else switches)["pid"][0])
    if pid in own:
        return
    bucket = classify(switches["start"], switches["took"], reads["start"], reads["took"])
    off = Spans.of(switches["start"], switches["took"])
    _save_waits(node, switches, bucket)
    _save_calls(node, calls, off, bucket)
    inner, waits = Spans.of(calls["start"], calls["took"]), calls[calls["sync"] > 0]
    found = account(off, bucket, inner, Spans.of(waits["start"], waits["took"]))
    if len(found.seconds) > node.seconds_left or len(found.seconds) == MAX_SECONDS:
        node.work.problems["thread_not_accounted"] += 1
        return
    node.seconds_left -= len(found.seconds)
    feeds = len(calls) > 0 or (tid == pid and pid in node.feeders)
    _settle(node, pid, found, switches, calls if callers.get(pid) == tid else None)
    _save_seconds(node, pid, tid, feeds, found, switches, bucket)


def _settle(
    node: _Node, pid: int, found: IntervalSums, switches: NDArray[np.void], calls: NDArray[np.void] | None
) -> None:
    """Give the time no interval covers to a bucket, minute by minute."""
    minutes = found.seconds // MINUTE * MINUTE
    ends, at = np.unique((switches["start"] + switches["took"]) // MINUTE * MINUTE, return_inverse=True)
    away = dict(zip(ends.tolist(), np.bincount(at, switches["took"]).tolist(), strict=True))
    for minute in np.unique(minutes).tolist():
        rows = np.arange(*np.searchsorted(minutes, (minute, minute + 1)), dtype=np.int64)
        total = node.totals.get((minute, node.switch_op, pid))
        complete = total is not None and total.count == total.stored
        if complete and total is not None:
            missing = total.sum_ns - int(away.get(minute, 0))
            _move(found.ns, rows, missing, int(Bucket.UNEXPLAINED))
        if calls is not None:
            _move(found.ns, rows, _unseen_calls(node, minute, pid, calls), int(Bucket.CUDA_CPU))
        left = int(Bucket.HOST_CPU if complete else Bucket.UNEXPLAINED)
        _move(found.ns, rows, int(found.ns[rows, REST].sum()), left)


def _move(ns: Ints, rows: Ints, total: int, bucket: int) -> None:
    moved = spread(total, ns[rows, REST])
    ns[rows, REST] -= moved
    ns[rows, bucket] += moved


def _unseen_calls(node: _Node, minute: int, pid: int, calls: NDArray[np.void]) -> int:
    """Time in calls of this minute that were counted and not stored."""
    unseen = {"runtime": 0, "driver": 0}
    low, high = np.searchsorted(calls["start"], (minute, minute + MINUTE))
    mine = calls[low:high]
    for op in node.counted.get((minute, pid), []):
        layer = {"graph": "runtime"}.get(node.layers[op], node.layers[op])
        if layer in unseen:
            stored = int(mine["took"][mine["op"] == op].sum())
            unseen[layer] += max(0, node.totals[minute, op, pid].sum_ns - stored)
    return max(unseen.values())


def _save_waits(node: _Node, switches: NDArray[np.void], bucket: Ints) -> None:
    """Each switch is a wait: its operation is the bucket, as with our own."""
    if not len(switches):
        return
    ops = {number: node.work.names.host_op(BUCKET_NAMES[number]) for number in _NAMED}
    ids = switches["id"].tolist()
    out = node.work.out
    out.executemany(
        "UPDATE event SET op_id = ? WHERE id = ?",
        [(ops[b], number) for b, number in zip(bucket.tolist(), ids, strict=True)],
    )
    out.executemany(
        "INSERT OR IGNORE INTO wait_detail (event_id, bucket, runqueue_ns, waker_kind, throttled)"
        " VALUES (?, ?, 0, 0, 0)",
        zip(ids, bucket.tolist(), strict=True),
    )


def _save_calls(node: _Node, calls: NDArray[np.void], off: Spans, bucket: Ints) -> None:
    """What each call's time was, and whether it was made inside another."""
    if not len(calls):
        return
    start, end = calls["start"], calls["start"] + calls["took"]
    columns: list[list[int]] = []
    rest = calls["took"].copy()
    for number in _NAMED:
        chosen = Spans(off.start[bucket == number], off.end[bucket == number]).merged()
        part = np.minimum(inside(chosen, start, end), rest)
        rest -= part
        columns.append(part.tolist())
    sync = calls["sync"] > 0
    columns += [np.where(sync, 0, rest).tolist(), np.where(sync, rest, 0).tolist()]
    numbers = (*_NAMED, int(Bucket.CUDA_CPU), int(Bucket.GPU_WAIT))
    assigned = ", ".join(f"{BUCKET_COLUMNS[number]} = ?" for number in numbers)
    node.work.out.executemany(
        f"UPDATE event SET {assigned}, flags = ? WHERE id = ?",
        zip(*columns, _flags(calls, end).tolist(), calls["id"].tolist(), strict=True),
    )


def _flags(calls: NDArray[np.void], end: Ints) -> Ints:
    """Nested where an earlier call of the thread returned later; calls are sorted, outer ones first."""
    reached = np.concatenate(([np.int64(-1)], np.maximum.accumulate(end)[:-1]))
    nested = end <= reached
    inner = int(CallFlag.CALL_NESTED) | int(CallFlag.CALL_FROM_RUNTIME)
    by_runtime = calls["source"] == 4  # a driver call inside another call is the runtime's
    return np.where(nested, np.where(by_runtime, inner, int(CallFlag.CALL_NESTED)), 0).astype(np.int64)


def _save_seconds(
    node: _Node,
    pid: int,
    tid: int,
    feeds: bool,
    found: IntervalSums,
    switches: NDArray[np.void],
    bucket: Ints,
) -> None:
    work = node.work
    comm = work.out.execute(
        "SELECT comm_id FROM foreign_process WHERE node_id = ? AND pid IN (?, ?) ORDER BY pid = ? DESC",
        (node.id, tid, pid, tid),
    ).fetchone()
    named = _per_second(found, switches["start"][bucket != int(Bucket.UNEXPLAINED)])
    ns = found.ns[:, :BUCKETS]
    rows: list[tuple[Any, ...]] = [
        (
            node.id, work.process_ids.get((node.id, pid)), pid, tid, comm[0] if comm else None, second,
            int(feeds), 0, voluntary, 0, 0, 0, *values,
        )
        for second, voluntary, values in zip(found.seconds.tolist(), named, ns.tolist(), strict=True)
        if any(values)
    ]  # fmt: skip
    marks = ", ".join("?" * (12 + BUCKETS))
    work.out.executemany(
        "INSERT INTO thread_second (node_id, process_id, pid, tid, comm_id, start_ns, feeder, throttled_ns,"
        " voluntary_switches, involuntary_switches, major_faults, minor_faults,"
        f" {', '.join(BUCKET_COLUMNS)}) VALUES ({marks})",
        rows,
    )


def _per_second(found: IntervalSums, instants: Ints) -> list[int]:
    at = np.searchsorted(found.seconds, instants, side="right") - 1
    counts: list[int] = np.bincount(np.maximum(at, 0), minlength=len(found.seconds)).tolist()
    return counts[: len(found.seconds)]
