"""Records as `trace --json` streams them: one flat object each, keyed like the views.

Every line has the columns of `events`; calls also have those of `cuda_events`,
collectives those of `nccl_events`. What is only known once it is stored (id) or
later (wait_ns) is null. The first line with a `stack_hash` also has
`stack`, its frames; later ones have the hash alone. A Python object per event is
made here, and only here, because somebody asked for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ingero import units
from ingero.clock import Clock
from ingero.model.layout import CallFlag, WakerKind
from ingero.model.operations import KernelName, Operation, Source
from ingero.model.stack import Frame, ResolvedStack
from ingero.model.window import BUCKET_NAMES, Process, Window, aligned

Line = dict[str, Any]
WAITING_STACKS = 20_000
DIRECTIONS = ("HtoH", "HtoD", "DtoH", "DtoD")
DATATYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2",
)  # fmt: skip
REDUCE_OPS = ("sum", "prod", "max", "min", "avg")
BLOCK_OPS = ("read", "write", "discard", "flush", "other")
EVENT_COLUMNS = (
    "id", "node", "timestamp", "pid", "tid", "comm", "source", "op", "duration", "gpu_id", "arg0", "arg1",
    "ret_code", "stack_hash", "cgroup_id", "rank", "local_rank", "world_size", "weight",
)  # fmt: skip


class RecordStream:
    """Turns windows into lines; remembers processes for their ranks."""

    def __init__(self, operations: Iterable[Operation], clock: Clock, node: str) -> None:
        self._operations = {operation.number: operation for operation in operations}
        self._clock = clock
        self._node = node
        self._processes: dict[int, Process] = {}
        self._ended: list[Process] = []  # of these the last window told
        self._stacks: dict[int, ResolvedStack] = {}  # not told yet

    def lines(self, window: Window) -> Iterator[Line]:
        """Every record of the window, kind by kind in order of time."""
        self._meet(window.processes)
        self._learn(window.stacks)
        call_stacks = aligned(window.call_stacks, len(window.calls)).tolist()
        wait_stacks = aligned(window.wait_stacks, len(window.waits)).tolist()
        for row, stack in zip(window.calls, call_stacks, strict=True):
            yield self._call(row, window.kernels) | self._from(stack)
        for row, stack in zip(window.waits, wait_stacks, strict=True):
            if row["bucket"] < len(BUCKET_NAMES):
                yield self._wait(row) | self._from(stack)
        yield from (self._block(row) for row in window.blocks)
        yield from (
            self._event(row["h"], Source.TCP, "retransmit", arg0=int(row["sport"]), arg1=int(row["dport"]))
            for row in window.tcp
        )
        yield from (
            self._event(row["h"], Source.HOST, "oom_kill", arg0=int(row["total_vm_pages"]))
            for row in window.ooms
        )
        yield from (
            self._event(row["h"], Source.HOST, "exec", arg0=int(row["parent_pid"])) for row in window.execs
        )
        yield from (self._event(row["h"], Source.HOST, "xid", arg0=int(row["code"])) for row in window.xids)

    def skip(self, window: Window) -> int:
        """How many lines it would have been; what later ones refer to is remembered."""
        self._meet(window.processes)
        self._learn(window.stacks)
        waits = int((window.waits["bucket"] < len(BUCKET_NAMES)).sum())
        others = (window.calls, window.blocks, window.tcp, window.ooms, window.execs, window.xids)
        return waits + sum(map(len, others))

    def _meet(self, processes: Iterable[Process]) -> None:
        """Those that ended are forgotten a window later: their last records are told by then."""
        for gone in self._ended:
            if self._processes.get(gone.pid) is gone:
                del self._processes[gone.pid]
        self._processes.update((process.pid, process) for process in processes)
        self._ended = [each for each in self._processes.values() if each.end_ns is not None]

    def _learn(self, stacks: Iterable[ResolvedStack]) -> None:
        """Stacks of samples alone are never told: the oldest of those waiting go."""
        self._stacks.update((stack.hash, stack) for stack in stacks)
        for hash_ in list(self._stacks)[: max(0, len(self._stacks) - WAITING_STACKS)]:
            del self._stacks[hash_]

    def _from(self, stack_hash: int) -> Line:
        if not stack_hash:
            return {}
        told = self._stacks.pop(stack_hash, None)
        frames = {"stack": [_frame(frame) for frame in told.frames]} if told else {}
        return {"stack_hash": stack_hash, **frames}

    def _event(self, header: np.void, source: Source, op: str, **more: Any) -> Line:
        pid = int(header["pid"]) or None
        process = self._processes.get(pid) if pid else None
        line: Line = dict.fromkeys(EVENT_COLUMNS)
        line |= {
            "node": self._node,
            "timestamp": self._clock.wall_ns(int(header["start_ns"])),
            "pid": pid,
            "tid": int(header["tid"]) or None,
            "comm": units.clean(bytes(header["comm"])) if pid else None,
            "source": int(source),
            "op": op,
            "cgroup_id": int(header["cgroup_id"]) or None,
            "weight": 1,
        }
        if process is not None:
            line |= {"rank": process.rank, "local_rank": process.local_rank, "world_size": process.world_size}
        return line | more

    def _call(self, row: np.void, kernels: Mapping[int, KernelName]) -> Line:
        number, flags = int(row["op"]), int(row["flags"])
        operation = self._operations.get(number) or Operation(
            number, f"operation {number}", "driver", "other"
        )
        size = None if flags & CallFlag.CALL_NO_BYTES else int(row["bytes"])
        line = self._event(row["h"], operation.source, operation.name)
        line |= {
            "duration": int(row["duration_ns"]),
            "gpu_id": int(row["gpu_id"]) if row["gpu_id"] >= 0 else None,
            "arg0": size if size is not None else _first_argument(row, operation),
            "arg1": _signed(row["args"][1]) if operation.arity > 1 else None,
            "ret_code": int(row["ret"]),
            "weight": int(row["weight"]),
            "timestamp_ns": line["timestamp"],
            "duration_ns": int(row["duration_ns"]),
            "bytes": size,
        }
        if operation.layer == "python":  # the host's work, no call of CUDA
            return line
        if operation.layer == "nccl":
            return line | _nccl(row, operation, flags)
        kernel = kernels.get(int(row["kernel"]))
        return line | _cuda(row, operation, flags) | {"kernel_name": kernel.text if kernel else None}

    def _wait(self, row: np.void) -> Line:
        waker = int(row["waker_pid"]) if row["waker_kind"] == WakerKind.WAKER_TASK else None
        syscall = int(row["syscall"])
        line = self._event(row["h"], Source.HOST, BUCKET_NAMES[int(row["bucket"])])
        return line | {
            "duration": int(row["duration_ns"]),
            "arg0": waker,
            "arg1": syscall if syscall >= 0 else None,
        }

    def _block(self, row: np.void) -> Line:
        op = BLOCK_OPS[min(int(row["write"]), len(BLOCK_OPS) - 1)]
        line = self._event(row["h"], Source.BLOCK_IO, op, ret_code=int(row["error"]))
        return line | {
            "duration": int(row["duration_ns"]),
            "arg0": int(row["sector"]),
            "arg1": int(row["bytes"]),
        }


def _frame(frame: Frame) -> Line:
    """Text of the traced process, cleaned and capped as the store does it."""
    fields = frame._asdict()
    return {
        name: units.clean(value, 500) if isinstance(value, str) else value for name, value in fields.items()
    }


def _cuda(row: np.void, operation: Operation, flags: int) -> Line:
    direct = "direct" if flags & CallFlag.CALL_DIRECT else None
    direction = operation.direction
    if direction is None and operation.kind_arg is not None:
        direction = _named(DIRECTIONS, row, operation.kind_arg)
    return {
        "layer": operation.layer,
        "caller": "runtime" if flags & CallFlag.CALL_FROM_RUNTIME else direct,
        "direction": direction,
        "stream": None if flags & CallFlag.CALL_NO_STREAM else _signed(row["stream"]),
        "ret": int(row["ret"]),
    }


def _nccl(row: np.void, operation: Operation, flags: int) -> Line:
    known, counted = bool(flags & CallFlag.CALL_COMM_KNOWN), not flags & CallFlag.CALL_COMM_JOINED
    peer = None if operation.peer_arg is None else int(row["args"][operation.peer_arg]) & 0xFFFFFFFF
    line: Line = {
        "comm_hash": f"{int(row['comm_hash']):016x}" if known and row["comm_hash"] else None,
        "seq": int(row["seq"]) if known and counted and operation.kind == "collective" else None,
        "nranks": int(row["nranks"]) if known and row["nranks"] > 0 else None,
        "datatype": _named(DATATYPES, row, operation.dtype_arg),
        "reduce_op": _named(REDUCE_OPS, row, operation.reduce_arg),
        "peer": peer,
        "wait_ns": None,
    }
    return line | ({"rank": int(row["rank"])} if known and row["rank"] >= 0 else {})


def _named(names: tuple[str, ...], row: np.void, argument: int | None) -> str | None:
    if argument is None:
        return None
    value = int(row["args"][argument]) & 0xFFFFFFFF  # an int leaves the upper half undefined
    return names[value] if value < len(names) else None


def _first_argument(row: np.void, operation: Operation) -> int | None:
    """As the store has it: no graph has the handle 0."""
    found = _signed(row["args"][0]) if operation.arity > 0 else None
    return None if found == 0 and operation.layer == "graph" else found


def _signed(value: np.uint64) -> int:
    return int(np.uint64(value).astype(np.int64))
