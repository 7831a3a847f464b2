"""What a window adds up to: operations, thread time, culprits, wakers, I/O, the machine."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from ingero.clock import Clock
from ingero.model import histogram
from ingero.model.layout import WakerKind
from ingero.model.window import BUCKETS, Container, Records, SystemSample
from ingero.store import call_rows
from ingero.store.columns import insert, ints, lengths, nullable
from ingero.store.names import Names, OperationTable
from ingero.store.processes import Processes
from ingero.store.schema import BUCKET_COLUMNS, GAP_COLUMNS

QUOTA = "[cpu quota]"
SHARES = (0.50, 0.95, 0.99)


@dataclass(slots=True)
class AggregateRows:
    """Writes the aggregates of one node's window within the open transaction."""

    connection: sqlite3.Connection
    node_id: int
    clock: Clock
    names: Names
    processes: Processes
    table: OperationTable
    start_ns: int  # Unix epoch
    end_ns: int

    def _process_ids(self, pids: NDArray[np.integer], create: bool = True) -> NDArray[np.int64]:
        return self.processes.during(pids, self.start_ns, self.end_ns, create)

    def operations(self, operations: Records) -> None:
        operations = operations[self.table.known(operations["op"]) & (operations["count"] > 0)]
        if not len(operations):
            return
        op_ids = self.table.ids(self.names)
        timed = operations["max_ns"] > 0
        p50, p95, p99 = _percentiles(operations, timed)
        process = self._process_ids(operations["pid"])
        insert(
            self.connection,
            "operation_second",
            {
                "node_id": repeat(self.node_id),
                "process_id": ints(process),
                "pid": ints(operations["pid"]),
                "op_id": ints(op_ids[operations["op"]]),
                "caller": ints(operations["caller"]),
                "start_ns": repeat(self.start_ns),
                "count": lengths(operations["count"]),
                "exact": ints(~operations["estimated"]),
                "count_error": lengths(operations["count_error"]),
                "sum_ns": lengths(operations["sum_ns"]),
                "min_ns": nullable(operations["min_ns"], timed),
                "max_ns": nullable(operations["max_ns"], timed),
                "p50_ns": p50,
                "p95_ns": p95,
                "p99_ns": p99,
                "bytes": nullable(operations["bytes"], self.table.bytes_known[operations["op"]]),
                "errors": lengths(operations["errors"]),
                "recorded": lengths(operations["recorded"]),
                "dropped": lengths(operations["dropped"]),
                "slots": [histogram.encode(slots) for slots in operations["slots"]],
            }
            | {name: lengths(operations["split"][:, at]) for at, name in enumerate(BUCKET_COLUMNS)},
        )

    def threads(self, threads: Records) -> None:
        if not len(threads):
            return
        counters = (
            "throttled_ns", "late_ns", "system_ns", "spun_ns", "reclaiming_ns", "known", "voluntary_switches",
            "involuntary_switches", "major_faults", "minor_faults",
        )  # fmt: skip
        insert(
            self.connection,
            "thread_second",
            {
                "node_id": repeat(self.node_id),
                "process_id": ints(self._process_ids(threads["pid"])),
                "pid": ints(threads["pid"]),
                "tid": ints(threads["tid"]),
                "comm_id": ints(self.names.comms(threads["comm"], threads["pid"])),
                # What a poll waited for is told when it ends: such a row belongs to an earlier window.
                "start_ns": ints(self.clock.wall_ns(threads["window_ns"].astype(np.int64))),
                "feeder": ints(threads["feeder"]),
                "gil_ns": nullable(threads["gil_ns"], threads["gil_ns"] >= 0),
            }
            | {name: lengths(threads[name]) for name in counters}
            | {name: lengths(threads["ns"][:, at]) for at, name in enumerate(BUCKET_COLUMNS)}
            | {name: lengths(threads["gap"][:, at]) for at, name in enumerate(GAP_COLUMNS)},
        )

    def samples(self, samples: Records) -> None:
        """Where threads were seen on a core."""
        samples = samples[(samples["bucket"] < BUCKETS) & (samples["count"] > 0)]
        if not len(samples):
            return
        in_call = self.table.known(samples["op"])
        op_ids = self.table.ids(self.names)
        process = self._process_ids(samples["pid"], create=False)
        insert(
            self.connection,
            "thread_sample",
            {
                "node_id": repeat(self.node_id),
                "start_ns": repeat(self.start_ns),
                "process_id": nullable(process, process > 0),
                "pid": ints(samples["pid"]),
                "tid": ints(samples["tid"]),
                "stack_hash": nullable(samples["stack_hash"], samples["stack_hash"] != 0),
                "bucket": ints(samples["bucket"]),
                "op_id": nullable(op_ids[np.where(in_call, samples["op"], 0)], in_call),
                "flags": ints(samples["flags"]),
                "count": lengths(samples["count"]),
            },
        )

    def culprits(self, culprits: Records) -> None:
        culprits = culprits[culprits["bucket"] < BUCKETS]
        if not len(culprits):
            return
        throttled = culprits["throttled"] > 0
        comm = np.where(
            throttled, self.names.string(QUOTA), self.names.comms(culprits["comm"], culprits["pid"])
        )
        insert(
            self.connection,
            "culprit",
            {
                "node_id": repeat(self.node_id),
                "start_ns": repeat(self.start_ns),
                "victim_pid": ints(culprits["victim_pid"]),
                "victim_tid": ints(culprits["victim_tid"]),
                "pid": nullable(culprits["pid"], ~throttled & (culprits["pid"] > 0)),
                "comm_id": ints(comm),
                "bucket": ints(culprits["bucket"]),
                "throttled": ints(throttled),
                "ns": lengths(culprits["ns"]),
                "count": lengths(culprits["count"]),
            },
        )

    def wakers(self, wakers: Records) -> None:
        wakers = wakers[wakers["bucket"] < BUCKETS]
        if not len(wakers):
            return
        task = wakers["kind"] == WakerKind.WAKER_TASK
        insert(
            self.connection,
            "waker",
            {
                "node_id": repeat(self.node_id),
                "start_ns": repeat(self.start_ns),
                "pid": ints(wakers["pid"]),
                "tid": ints(wakers["tid"]),
                "waker_pid": nullable(wakers["waker_pid"], task),
                "waker_tid": nullable(wakers["waker_tid"], task),
                "kind": ints(wakers["kind"]),
                "comm_id": nullable(self.names.comms(wakers["comm"], wakers["waker_pid"]), task),
                "bucket": ints(wakers["bucket"]),
                "ns": lengths(wakers["ns"]),
                "count": lengths(wakers["count"]),
            },
        )

    def io(self, blocks: Records) -> None:
        """Block requests by who issued them; outlives the single requests."""
        if not len(blocks):
            return
        comm, op_ids = (
            self.names.comms(blocks["h"]["comm"], blocks["h"]["pid"]),
            self.names.block_ops(blocks["write"]),
        )
        keys = np.stack([blocks["h"]["pid"], comm, op_ids, blocks["dev"]], axis=1).astype(np.int64)
        groups, inverse = np.unique(keys, axis=0, return_inverse=True)
        sums = np.zeros((len(groups), 4), np.int64)
        took_ns = blocks["duration_ns"].astype(np.int64)
        for column, values in enumerate((np.ones(len(blocks), np.int64), blocks["bytes"], took_ns)):
            np.add.at(sums[:, column], inverse, values.astype(np.int64))
        np.maximum.at(sums[:, 3], inverse, took_ns)
        process = self._process_ids(groups[:, 0], create=False)
        insert(
            self.connection,
            "io_second",
            {
                "node_id": repeat(self.node_id),
                "start_ns": repeat(self.start_ns),
                "process_id": nullable(process, process > 0),
                "pid": nullable(groups[:, 0], groups[:, 0] > 0),
                "comm_id": ints(groups[:, 1]),
                "op_id": ints(groups[:, 2]),
                "dev": ints(groups[:, 3]),
            }
            | {name: ints(sums[:, at]) for at, name in enumerate(("count", "bytes", "ns", "max_ns"))},
        )

    def others_io(self, io: Records) -> None:
        """Block requests of processes that are not traced."""
        if not len(io):
            return
        process = self._process_ids(io["pid"], create=False)
        insert(
            self.connection,
            "io_second",
            {
                "node_id": repeat(self.node_id),
                "start_ns": repeat(self.start_ns),
                "process_id": nullable(process, process > 0),
                "pid": nullable(io["pid"], io["pid"] > 0),
                "comm_id": ints(self.names.comms(io["comm"], io["pid"])),
                "op_id": ints(self.names.block_ops(io["write"])),
                "dev": ints(io["dev"]),
                "max_ns": nullable(io["max_ns"], io["max_ns"] >= 0),
            }
            | {name: lengths(io[name]) for name in ("count", "bytes", "ns")},
        )

    def system(self, sample: SystemSample) -> None:
        self.connection.execute(
            "INSERT OR REPLACE INTO system_sample VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self.node_id, self.end_ns, sample.cpu_share, sample.memory_share,
                sample.memory_available_bytes, sample.load1, sample.cores, sample.swap_bytes,
                sample.psi_cpu_some, sample.psi_memory_some,
                sample.psi_io_some,
            ),
        )  # fmt: skip

    def containers(self, containers: list[Container]) -> None:
        self.connection.executemany(
            "INSERT OR REPLACE INTO container (node_id, cgroup_id, cgroup_path, container_id, runtime, pod,"
            " namespace, job) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    self.node_id,
                    c.cgroup_id,
                    c.cgroup_path,
                    c.container_id,
                    c.runtime,
                    c.pod,
                    c.namespace,
                    c.job,
                )
                for c in containers
            ],
        )

    def in_flight(self, threads: Records) -> None:
        """Calls that have not returned and waits that have not ended."""
        threads = call_rows.known_in_flight(threads)
        if len(threads):
            process_ids = self._process_ids(threads["h"]["pid"])
            call_rows.save_in_flight(
                self.connection,
                self.node_id,
                self.clock,
                self.names,
                self.table,
                threads,
                process_ids,
                self.end_ns,
            )


def _percentiles(operations: Records, timed: NDArray[np.bool_]) -> list[tuple[int | None, ...]]:
    rows = [
        histogram.percentiles(slots, SHARES, int(low) if known else None, int(high) if known else None)
        for slots, low, high, known in zip(
            operations["slots"], operations["min_ns"], operations["max_ns"], timed, strict=True
        )
    ]
    return list(zip(*rows, strict=True))
