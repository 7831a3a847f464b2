"""Records of one window as rows of `event` and its side tables.

Whole columns are converted at once; a Python object per field exists only while
SQLite takes it. Unknown becomes NULL here, never 0.
"""

from __future__ import annotations

import ipaddress
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingero.clock import Clock
from ingero.model.layout import CallFlag, GilMark, WakerKind
from ingero.model.operations import KernelName, Source
from ingero.model.window import BUCKET_NAMES, Records, StackHashes
from ingero.store import call_rows
from ingero.store.call_rows import argument
from ingero.store.columns import Column, insert, ints, lengths, nullable
from ingero.store.names import Names, OperationTable
from ingero.store.processes import LifeEvent, Processes
from ingero.store.schema import BUCKET_COLUMNS
from ingero.store.weights import callers
from ingero.units import clean

NO_KERNELS: Mapping[int, KernelName] = MappingProxyType({})
CHUNK = 10_000  # rows converted at a time: larger costs memory and is no faster


@dataclass(slots=True)
class Ids:
    """Hands out the numbers of new rows on this node."""

    base: int
    next: int

    def take(self, count: int) -> list[int]:
        first = self.base + self.next
        self.next += count
        return list(range(first, first + count))


@dataclass(slots=True)
class EventRows:
    """Writes the events of one node within the open transaction."""

    connection: sqlite3.Connection
    node_id: int
    clock: Clock
    names: Names
    processes: Processes
    table: OperationTable
    ids: Ids
    last_ids: dict[tuple[int, int, int], int]  # of (pid, operation, caller)

    def calls(
        self, calls: Records, stacks: StackHashes, kernels: Mapping[int, KernelName] = NO_KERNELS
    ) -> int:
        """Store calls; returns how many had an operation number nobody knows."""
        known = self.table.known(calls["op"])
        foreign = int(len(calls) - known.sum())
        if foreign:
            calls, stacks = calls[known], stacks[known]
        op_ids = self.table.ids(self.names) if len(calls) else np.zeros(0, np.int64)
        for start in range(0, len(calls), CHUNK):
            some = slice(start, start + CHUNK)
            self._calls(calls[some], stacks[some], op_ids, kernels)
        return foreign

    def unsampled(self, rows: Records) -> None:
        """Calls after the last sample: the last record of their kind stands for them too."""
        for row in rows:
            key = (int(row["pid"]), int(row["op"]), int(row["caller"]))
            number = self.last_ids.get(key)
            if number is not None:
                self.connection.execute(
                    "UPDATE event SET weight = weight + ? WHERE id = ?", (int(row["calls"]), number)
                )

    def _remember(self, calls: Records, ids: list[int]) -> None:
        """The last record of each process, operation and caller."""
        caller = callers(calls)
        key = calls["h"]["pid"].astype(np.int64) << 20 | calls["op"].astype(np.int64) << 2 | caller
        _, from_end = np.unique(key[::-1], return_index=True)
        for at in (len(key) - 1 - from_end).tolist():
            self.last_ids[int(calls["h"]["pid"][at]), int(calls["op"][at]), int(caller[at])] = ids[at]

    def _calls(
        self,
        calls: Records,
        stacks: StackHashes,
        op_ids: NDArray[np.int64],
        kernels: Mapping[int, KernelName],
    ) -> None:
        ids = self.ids.take(len(calls))
        self._remember(calls, ids)
        op, flags = calls["op"].astype(np.int64), calls["flags"]
        head = self._head(calls, ids, self.table.source[op], op_ids[op], create=True)
        gpu, split = calls["gpu_id"], calls["split"]
        direction = self._direction(calls, op)
        kernel = self.names.kernels(calls["kernel"], kernels)
        first, second = (calls["args"][:, at].astype(np.int64) for at in (0, 1))
        # No graph has the handle 0: where a graph call has it, which graph it was is not known.
        known = (self.table.source[op] != int(Source.GRAPH)) | (first != 0)
        made = (self.table.source[op] != int(Source.GRAPH)) | (calls["out"] != 0)
        insert(
            self.connection,
            "event",
            head
            | {
                "duration_ns": lengths(calls["duration_ns"]),
                "weight": ints(calls["weight"]),
                "flags": ints(flags),
                "why": ints(calls["why"]),
                "depth": ints(calls["depth"]),
                "gpu_id": nullable(gpu, gpu >= 0),
                "ret": ints(calls["ret"]),
                "arg0": nullable(first, (self.table.arity[op] > 0) & known),
                "arg1": nullable(second, self.table.arity[op] > 1),
                "bytes": _bytes(calls),
                "stream": nullable(calls["stream"], flags & CallFlag.CALL_NO_STREAM == 0),
                "out": nullable(calls["out"], (flags & CallFlag.CALL_NO_OUT == 0) & made),
                "direction": nullable(direction, direction >= 0),
                "stack_hash": nullable(stacks, stacks != 0),
                "kernel_id": nullable(kernel, kernel > 0),
            }
            | {name: lengths(split[:, at]) for at, name in enumerate(BUCKET_COLUMNS)},
        )
        nccl = np.flatnonzero(self.table.source[op] == int(Source.NCCL))
        if len(nccl):
            ids = [ids[i] for i in nccl.tolist()]
            call_rows.save_collectives(
                self.connection, self.clock, self.table, calls[nccl], op_ids[op[nccl]], ids
            )

    def _head(
        self, records: Records, ids: list[int], source: Any, op_id: Any, create: bool
    ) -> dict[str, Column]:
        """The columns every event has; source and op_id are arrays or one number for all."""
        h = records["h"]
        at_ns = self.clock.wall_ns(h["start_ns"])
        pid = h["pid"]
        process = self.processes.at(pid, at_ns, create)
        somebody = pid > 0  # pid 0 is whoever was interrupted, not an owner
        return {
            "id": ids,
            "node_id": repeat(self.node_id),
            "source": ints(source) if isinstance(source, np.ndarray) else repeat(int(source)),
            "op_id": ints(op_id) if isinstance(op_id, np.ndarray) else repeat(op_id),
            "ts_ns": ints(at_ns),
            "pid": nullable(pid, somebody),
            "tid": nullable(h["tid"], somebody),
            "process_id": nullable(process, process > 0),
            "comm_id": nullable(self.names.comms(h["comm"], pid), somebody),
            "cgroup_id": nullable(h["cgroup_id"], h["cgroup_id"] > 0),
        }

    def _direction(self, calls: Records, op: NDArray[np.int64]) -> NDArray[np.int64]:
        direction = self.table.direction[op]
        kind = argument(calls, self.table.kind_arg[op])
        told = (direction < 0) & (kind >= 0) & (kind <= 3)  # 4: the driver decides by the pointers
        return np.where(told, kind, direction)

    def waits(self, waits: Records, stacks: StackHashes) -> None:
        known = waits["bucket"] < len(BUCKET_NAMES)
        waits, stacks = waits[known], stacks[known]
        if not len(waits):
            return
        ids = self.ids.take(len(waits))
        bucket_ops = np.array([self.names.host_op(name) for name in BUCKET_NAMES], np.int64)
        by_task = waits["waker_kind"] == WakerKind.WAKER_TASK
        head = self._head(waits, ids, Source.HOST, bucket_ops[waits["bucket"]], create=True)
        waker_pid = list(_finite(nullable(waits["waker_pid"], by_task), len(waits)))
        insert(
            self.connection,
            "event",
            head
            | {
                "duration_ns": lengths(waits["duration_ns"]),
                "arg0": waker_pid,
                "arg1": nullable(waits["syscall"], waits["syscall"] >= 0),
                "stack_hash": nullable(stacks, stacks != 0),
            },
        )
        in_call = self.table.known(waits["op"])
        op_ids = self.table.ids(self.names)
        call_op = op_ids[np.where(in_call, waits["op"], 0)]
        insert(
            self.connection,
            "wait_detail",
            {
                "event_id": ids,
                "bucket": ints(waits["bucket"]),
                "runqueue_ns": lengths(waits["runqueue_ns"]),
                "waker_kind": ints(waits["waker_kind"]),
                "waker_pid": waker_pid,
                "waker_tid": nullable(waits["waker_tid"], by_task),
                "waker_id": nullable(self.names.comms(waits["waker"], waits["waker_pid"]), by_task),
                "call_op_id": nullable(call_op, in_call),
                "throttled": ints(waits["throttled"]),
                "dev": nullable(waits["dev"], waits["dev"] > 0),
                "sector": nullable(waits["sector"], waits["dev"] > 0),
                "address": nullable(waits["address"], waits["address"] > 0),
                "gil": nullable(waits["gil"] == GilMark.GIL_YES, waits["gil"] != GilMark.GIL_UNKNOWN),
                "holder_tid": nullable(waits["holder_tid"], waits["holder_tid"] > 0),
            },
        )

    def blocks(self, blocks: Records) -> None:
        if not len(blocks):
            return
        ids = self.ids.take(len(blocks))
        head = self._head(blocks, ids, Source.BLOCK_IO, self.names.block_ops(blocks["write"]), create=False)
        details = {
            "duration_ns": lengths(blocks["duration_ns"]),
            "ret": ints(blocks["error"]),
            "arg0": ints(blocks["sector"]),
            "arg1": ints(blocks["bytes"]),
        }
        insert(self.connection, "event", head | details)
        waited = blocks["waiter_pid"] > 0
        insert(
            self.connection,
            "block_detail",
            {
                "event_id": ids,
                "queued_ns": lengths(blocks["queued_ns"]),
                "dev": ints(blocks["dev"]),
                "waiter_pid": nullable(blocks["waiter_pid"], waited),
                "waiter_tid": nullable(blocks["waiter_tid"], waited),
            },
        )

    def retransmits(self, tcp: Records) -> None:
        if not len(tcp):
            return
        ids = self.ids.take(len(tcp))
        op_id = self.names.op(Source.TCP, "tcp", "retransmit")
        head = self._head(tcp, ids, Source.TCP, op_id, create=False)
        ports = {"arg0": ints(tcp["sport"]), "arg1": ints(tcp["dport"])}
        insert(self.connection, "event", head | ports)
        insert(
            self.connection,
            "tcp_detail",
            {
                "event_id": ids,
                "local_address": [_address(f, a) for f, a in zip(tcp["family"], tcp["saddr"], strict=True)],
                "local_port": ints(tcp["sport"]),
                "remote_address": [_address(f, a) for f, a in zip(tcp["family"], tcp["daddr"], strict=True)],
                "remote_port": ints(tcp["dport"]),
                "state": ints(tcp["state"]),
                "inode": nullable(tcp["inode"], tcp["inode"] > 0),
                "uid": ints(tcp["uid"]),
                "peer_pid": nullable(tcp["peer_pid"], tcp["peer_pid"] > 0),
            },
        )

    def oom_kills(self, ooms: Records) -> None:
        if len(ooms):
            head = self._head(
                ooms, self.ids.take(len(ooms)), Source.HOST, self.names.host_op("oom_kill"), create=False
            )
            pages = {"arg0": ints(ooms["total_vm_pages"]), "arg1": ints(ooms["anon_rss_pages"])}
            insert(self.connection, "event", head | pages)

    def execs(self, execs: Records) -> None:
        if len(execs):
            op = self.names.host_op("exec")
            head = self._head(execs, self.ids.take(len(execs)), Source.HOST, op, create=False)
            insert(self.connection, "event", head | {"arg0": ints(execs["parent_pid"])})

    def xids(self, xids: Records) -> None:
        if not len(xids):
            return
        ids = self.ids.take(len(xids))
        head = self._head(xids, ids, Source.HOST, self.names.host_op("xid"), create=False)
        insert(self.connection, "event", head | {"arg0": ints(xids["code"])})
        device = [clean(raw, 32) for raw in xids["device"].tolist()]
        message = [clean(raw, 128) for raw in xids["message"].tolist()]
        insert(self.connection, "xid_detail", {"event_id": ids, "device": device, "message": message})

    def life(self, events: Sequence[LifeEvent]) -> None:
        """Processes that began or ended."""
        for number, event in zip(self.ids.take(len(events)), events, strict=True):
            p = event.process
            self.connection.execute(
                "INSERT INTO event (id, node_id, source, op_id, ts_ns, pid, tid, process_id, comm_id,"
                " cgroup_id, arg0, ret) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    number, self.node_id, int(Source.HOST), self.names.host_op(event.name), event.at_ns,
                    p.pid, p.pid, event.process_id,
                    self.names.comm(p.comm.encode("utf-8", "replace"), p.pid), p.cgroup_id or None,
                    p.parent_pid,
                    p.exit_code if event.name == "exit" else None,
                ),
            )  # fmt: skip


def _bytes(calls: Records) -> Column:
    known = (calls["flags"] & CallFlag.CALL_NO_BYTES == 0) & (calls["bytes"] < 2**63)
    return nullable(calls["bytes"], known)


def _finite(column: Column, count: int) -> Iterator[Any]:
    return (value for value, _ in zip(column, range(count), strict=False))


def _address(family: int, raw: NDArray[np.uint8]) -> str:
    if family == 2:
        return str(ipaddress.IPv4Address(raw[:4].tobytes()))
    return str(ipaddress.IPv6Address(raw.tobytes()))
