"""Calls on the timeline: a track for each thread, with what was passed and what came back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, groupby
from typing import Any

from ingero.serve.answers.timeline_rows import Asked, Row
from ingero.serve.answers.tracks import EVENT, Item, Slice, nested
from ingero.store.schema import SEQ_MASK

DIRECTIONS = ("HtoH", "HtoD", "DtoH", "DtoD")
CALL_LAYERS = ("runtime", "driver", "graph", "nccl", "python", "socket")


def calls(asked: Asked) -> Iterator[Item]:
    """Calls of each thread, one thread after the other."""
    rows = asked.rows(
        "SELECT e.node_id, e.process_id, e.pid, e.tid, c.text, e.ts_ns, e.duration_ns, e.op_id, e.id,"
        " e.bytes, e.direction, e.stream, e.ret, e.gpu_id, e.weight, e.kernel_id, e.stack_hash FROM event e"
        " LEFT JOIN string c ON c.id = e.comm_id"
        f" WHERE {asked.events(*CALL_LAYERS)}"
        " ORDER BY e.node_id, e.process_id, e.pid, e.tid, e.ts_ns, e.duration_ns DESC, e.depth, e.id"
    )
    for who, group in groupby(rows, key=lambda row: row[:4]):
        first = next(group)
        track = asked.thread(who, first[4]).id
        yield from nested(_call(asked, track, row) for row in chain([first], group))


def _call(asked: Asked, track: int, row: Row) -> Slice:
    start, took, op, number, size, direction, stream, ret, gpu, weight, kernel, stack = row[5:]
    found: list[tuple[str, Any]] = [(EVENT, number & SEQ_MASK)]
    if size is not None:
        found.append(("bytes", size))
    if direction is not None and 0 <= direction < 4:
        found.append(("direction", DIRECTIONS[direction]))
    if stream is not None:
        found.append(("stream", stream))
    if ret is not None:
        found.append(("ret", ret))
    if gpu is not None:
        found.append(("gpu_id", gpu))
    if weight != 1:
        found.append(("stands_for_calls", weight))
    if kernel and (name := asked.kernel(kernel)):
        found.append(("kernel_name", name))
    if stack and (text := asked.stack(stack)):
        found.append(("stack", text))
    layer, name = asked.ops[op]
    return Slice(track, start, start + took, name, layer, tuple(found))
