"""One stored event: what was called, how long it took and where that time went, and from which line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from ingero.correlate.activity import source_of
from ingero.errors import TargetError, UsageError
from ingero.model.finding import SourceLine, StackFrame
from ingero.serve.answers.sense import checked, sense_made_of
from ingero.serve.answers.timeline_events import DIRECTIONS
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.store.schema import BUCKET_COLUMNS, SEQ_MASK
from ingero.store.sites import SiteReader
from ingero.units import clean

_ID = re.compile(r".{1,280}:[0-9]{1,18}", re.DOTALL)
_EVENT = f"""
    SELECT n.name, o.layer, o.name, e.ts_ns, e.duration_ns, e.pid, e.tid, c.text, e.gpu_id, e.bytes,
        e.direction, e.stream, e.ret, e.weight, k.name, e.stack_hash, w.waker_pid, w.waker_tid, q.text,
        {", ".join(f"e.{column}" for column in BUCKET_COLUMNS)}
    FROM event e
    JOIN op o ON o.id = e.op_id
    LEFT JOIN node n ON n.id = e.node_id
    LEFT JOIN string c ON c.id = e.comm_id
    LEFT JOIN kernel k ON k.id = e.kernel_id
    LEFT JOIN wait_detail w ON w.event_id = e.id
    LEFT JOIN string q ON q.id = w.waker_id
    WHERE e.id = ?"""


class EventAnswer(msgspec.Struct, frozen=True):
    """`time` is the event's own length by bucket, where it was accounted."""

    id: str
    node: str
    layer: str
    op: str
    at_ns: int
    duration_ns: int | None
    pid: int | None
    tid: int | None
    comm: str | None
    gpu_id: int | None
    bytes: int | None
    direction: str | None
    stream: int | None
    ret: int | None
    stands_for_calls: int
    kernel: str | None
    woken_by: str | None
    time: dict[str, int]
    source: SourceLine | None
    stack: list[StackFrame]  # innermost first


def get_event(db: Path | None, event_id: str) -> EventAnswer:
    """By an id such as `gpu-node-01:4821`."""
    if not _ID.fullmatch(event_id):
        raise UsageError(
            f"{clean(event_id, 60)!r} is not the id of an event",
            hint="Write NODE:NUMBER, e.g. gpu-node-01:4821.",
        )
    with Reader(db or last_path()) as reader, reader.trouble_told():
        number = reader.event_id(event_id)
        rows = reader.rows(_EVENT, (number,)) if number is not None and number < 1 << 63 else []
        if not rows:
            raise TargetError(
                f"there is no event {clean(event_id, 60)!r}",
                hint="Old detail is removed first, see --max-db.",
            )
        with sense_made_of(reader):
            return checked(_event(reader, number or 0, rows[0]))


def _event(reader: Reader, number: int, row: tuple[Any, ...]) -> EventAnswer:
    node, layer, op, at, took, pid, tid, comm, gpu, size, direction, stream, ret, weight, kernel, *rest = row
    stack_hash, waker_pid, waker_tid, waker, *buckets = rest
    frames = SiteReader(reader.connection, 0).stacks([stack_hash or 0]).get(stack_hash or 0, ())
    where = DIRECTIONS[direction] if direction is not None and 0 <= direction < len(DIRECTIONS) else None
    return EventAnswer(
        id=f"{node}:{number & SEQ_MASK}",
        node=node or "?",
        layer=layer,
        op=op,
        at_ns=at,
        duration_ns=took,
        pid=pid,
        tid=tid,
        comm=comm,
        gpu_id=gpu,
        bytes=size,
        direction=where,
        stream=stream,
        ret=ret,
        stands_for_calls=weight,
        kernel=kernel,
        woken_by=f"{waker or '?'} ({waker_pid}, thread {waker_tid})" if waker_tid else None,
        time={name.removesuffix("_ns"): ns for name, ns in zip(BUCKET_COLUMNS, buckets, strict=True) if ns},
        source=source_of(frames),
        stack=[
            StackFrame(each.kind, each.function or None, each.file, each.line, each.module) for each in frames
        ],
    )
