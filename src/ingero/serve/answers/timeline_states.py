"""What threads waited for, who ended the waits, and where each second went."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, groupby
from typing import Any

from ingero.model.layout import WakerKind
from ingero.serve.answers.timeline_rows import Asked, Row, tidy
from ingero.serve.answers.tracks import EVENT, Arguments, Item, Moment, Slice
from ingero.store.schema import BUCKET_COLUMNS, SEQ_MASK

WOKEN_BY_TASK = int(WakerKind.WAKER_TASK)
_BUCKETS = tuple(column.removesuffix("_ns") for column in BUCKET_COLUMNS)


def states(asked: Asked) -> Iterator[Item]:
    """What each thread waited for, where that was stored wait by wait."""
    rows = asked.rows(
        "SELECT e.node_id, e.process_id, e.pid, e.tid, c.text, e.ts_ns, e.duration_ns, e.op_id, e.id,"
        " w.runqueue_ns, w.waker_kind, w.waker_pid, w.waker_tid, k.text, w.call_op_id, w.throttled, w.gil,"
        " w.holder_tid, e.stack_hash"
        " FROM event e LEFT JOIN wait_detail w ON w.event_id = e.id"
        " LEFT JOIN string c ON c.id = e.comm_id LEFT JOIN string k ON k.id = w.waker_id"
        f" WHERE {asked.events('host')}"
        " ORDER BY e.node_id, e.process_id, e.pid, e.tid, e.ts_ns, e.id"
    )
    for who, group in groupby(rows, key=lambda row: row[:4]):
        first = next(group)
        lane = asked.tracks.lane(asked.thread(who, first[4]), "states", 1).id
        reached = 0
        for row in chain([first], group):
            start = max(row[5], reached)  # a thread is in one state at a time
            reached = max(start, row[5] + row[6])
            yield from _state(asked, lane, start, reached, row)


def _state(asked: Asked, lane: int, start: int, end: int, row: Row) -> Iterator[Item]:
    op, number, runqueue, kind, waker_pid, waker_tid, waker, call_op, *more = row[7:]
    throttled, gil, holder, stack = more
    found: list[tuple[str, Any]] = [(EVENT, number & SEQ_MASK)]
    if runqueue:
        found.append(("of it waiting for a core, ns", runqueue))
    if call_op in asked.ops:
        found.append(("inside", asked.ops[call_op][1]))
    if throttled:
        found.append(("throttled", "CPU quota"))
    if gil:
        found.append(("lock", "GIL"))
    if holder:
        found.append(("lock held by thread", holder))
    if stack and (text := asked.stack(stack)):
        found.append(("stack", text))
    yield Slice(lane, start, end, asked.ops[op][1], "state", tuple(found))
    if kind == WOKEN_BY_TASK and waker_tid is not None:
        at = min(max(end - (runqueue or 0), start), end)
        name = f"woken by {tidy(waker or '?', 64)}"
        yield Moment(
            lane, at, name, "wake", (("pid", waker_pid or 0), ("tid", waker_tid)), flows_in=(number,)
        )


def wakes(asked: Asked) -> Iterator[Item]:
    """The other end of each arrow: who woke a waiting thread, and when."""
    at = "e.ts_ns + e.duration_ns - MIN(COALESCE(w.runqueue_ns, 0), e.duration_ns)"
    rows = asked.rows(
        f"SELECT e.node_id, w.waker_pid, w.waker_tid, {at} AS at, k.text, e.id, e.pid, e.tid, c.text"
        " FROM event e JOIN wait_detail w ON w.event_id = e.id"
        " LEFT JOIN string c ON c.id = e.comm_id LEFT JOIN string k ON k.id = w.waker_id"
        f" WHERE {asked.events('host')} AND w.waker_kind = {WOKEN_BY_TASK}"
        " AND w.waker_tid IS NOT NULL ORDER BY e.node_id, w.waker_pid, w.waker_tid, at, e.id"
    )
    for (node_id, pid, tid), group in groupby(rows, key=lambda row: row[:3]):
        lane = 0
        for _, _, _, at_ns, comm, number, victim_pid, victim_tid, victim in group:
            if not lane:
                process = asked.tracks.process(node_id, asked.process_at(node_id, pid, at_ns), pid, comm)
                lane = asked.tracks.lane(asked.tracks.thread(process, tid, comm), "wakes", 2).id
            yield Moment(
                lane, at_ns, f"wakes {tidy(victim or '?', 64)}", "wake",
                (("pid", victim_pid or 0), ("tid", victim_tid or 0)), flows_out=(number,),
            )  # fmt: skip


def accounted(asked: Asked) -> Iterator[Item]:
    """Second by second, where all of a thread's time went; named after what took most."""
    rows = asked.rows(
        f"SELECT t.node_id, t.process_id, t.pid, t.tid, c.text, t.start_ns, {', '.join(BUCKET_COLUMNS)}"
        " FROM thread_second t LEFT JOIN string c ON c.id = t.comm_id"
        f" WHERE t.start_ns >= ? AND t.start_ns < ?{asked.of_process('t')}"
        " ORDER BY t.node_id, t.process_id, t.pid, t.tid, t.start_ns, t.id",
        asked.between,
    )
    for who, group in groupby(rows, key=lambda row: row[:4]):
        lane, reached = 0, 0
        for _, _, _, _, comm, start, *ns in group:
            lane = lane or asked.tracks.lane(asked.thread(who, comm), "accounted time, by second", 3).id
            start = max(start, reached)
            reached = start + sum(ns)
            if reached > start:
                yield Slice(lane, start, reached, _BUCKETS[ns.index(max(ns))], "accounted", _known(ns))


def _known(ns: list[int]) -> Arguments:
    return tuple((f"{name}_ns", value) for name, value in zip(_BUCKETS, ns, strict=True) if value)
