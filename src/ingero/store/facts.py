"""The facts of a stretch of time, read from the database for the diagnosis."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingero.model import facts as model
from ingero.model.facts import SLICE_NS, Facts
from ingero.model.layout import CallFlag, Why
from ingero.model.span_sums import SUMMED, Span, SpanRows
from ingero.model.window import BUCKET_NAMES, InFlightFlag, Records
from ingero.store.beside_facts import read_gpus, read_pods, read_said
from ingero.store.schema import BUCKET_COLUMNS, GAP_COLUMNS, NODE_SHIFT, SEQ_MASK
from ingero.store.sites import SiteReader
from ingero.units import cpus_of

MAX_MARKS = 200_000
SHOWN_WAITS = 3
STALLS = ("sleep", "peer_wait", "net_wait", "disk_wait", "lock_wait", "memory_wait")  # not for GPU or core
MAX_INCIDENTS = 1000
MAX_ARRIVALS = 100_000
# What a foreign recording has in part counts as far as it goes.
PARTLY = ("sched", "threads", "calls", "operations", "lines")
Row = tuple[Any, ...]


class FactReader:
    """Reads the facts of one node between two instants."""

    def __init__(self, connection: sqlite3.Connection, node_id: int, origin_ns: int) -> None:
        self._connection = connection
        self._node = node_id
        self._origin = origin_ns
        self._chosen: tuple[Span, ...] = ()
        self._asked: dict[object, Any] = {}  # answers that several ask for

    def read(self, from_ns: int, to_ns: int) -> Facts:
        self._from, self._to = from_ns, to_ns
        name, cores, agent_pid, absent, foreign = self._one(
            "SELECT n.name, IIF(TYPEOF(r.cores) = 'integer', r.cores, NULL), r.agent_pid, r.absent, m.value"
            " FROM node n LEFT JOIN recording r"
            " ON r.node_id = n.id AND r.started_ns < ? LEFT JOIN meta m ON m.key = 'not_watched:' || r.id"
            " WHERE n.id = ? ORDER BY r.started_ns DESC LIMIT 1",
            (to_ns, self._node),
        )
        found = Facts(name, self._origin, from_ns, to_ns, cores, agent_pid=agent_pid)
        found.absent = json.loads(absent) if absent else {}
        if foreign:
            found.partial = True
            found.absent |= {each["what"]: each["why"] for each in json.loads(foreign)}
            found.limits = {what: found.absent.pop(what) for what in PARTLY if what in found.absent}
        found.strings = dict(self._all("SELECT id, text FROM string"))
        found.ops = {
            number: model.OpFact(layer, name, kind)
            for number, layer, name, kind in self._all("SELECT id, layer, name, kind FROM op")
        }
        found.threads = self._threads()
        found.operations = self._operations()
        found.culprits = self._culprits()
        found.wakers = self._wakers()
        self._ids = self._id_range()
        found.complete_from_ns = self._complete_from()
        self._read_details(found)
        found.marks = self._marks
        found.stalls = self._stalls
        found.seconds = self._seconds
        found.said = partial(read_said, self._connection, self._range)
        found.windows = self._windows
        found.spans = self._spans
        found.busy = self._busy
        found.freed_nothing = self._freed_nothing
        found.longest = self._longest
        found.sites = SiteReader(self._connection, self._node)
        return found

    def _read_details(self, found: Facts) -> None:
        found.processes = {each.pid: each for each in self._processes()}
        if len(found.operations) and found.operations["errors"].any():
            found.errors = list(self._errors(found))
        found.ooms = list(self._incidents("oom_kill"))
        found.xids = list(self._xids())
        read_pods(self._connection, found, *self._range)
        found.retransmits = list(self._retransmits())
        found.in_flight = list(self._in_flight(found))
        if any(op.layer == "nccl" for op in found.ops.values()):
            found.arrivals = self._arrivals(found)
            found.unmatched = list(self._unmatched(found))
            found.nameless = self._nameless(found)
            found.standing = self._standing(found)
        found.cards = read_gpus(self._connection, self._node, self._origin, self._from, self._to)
        feeding = found.threads["pid"][found.threads["feeder"] > 0]
        if len(found.cards.samples) or len(np.unique(feeding)) > 1:
            found.gpus = self._gpus()
        if not len(found.cards.samples):
            found.absent.setdefault("gpu", found.cards.why or "no counters of a GPU in this recording")
        found.system = list(self._system())
        found.losses = list(self._losses())
        found.blind = self._all(
            "SELECT pid, what, why FROM not_watched WHERE node_id = ? AND at_ns >= ? AND at_ns <= ?",
            self._range,
        )

    def _all(self, sql: str, parameters: Iterable[Any] = ()) -> list[Row]:
        return self._connection.execute(sql, tuple(parameters)).fetchall()

    def _one(self, sql: str, parameters: Iterable[Any]) -> Row:
        return self._all(sql, parameters)[0]

    @property
    def _range(self) -> tuple[int, int, int]:
        return self._node, self._from, self._to

    def _sums(
        self, table: str, keys: tuple[str, ...], sums: tuple[str, ...], maxima: tuple[str, ...]
    ) -> list[Row]:
        """By slice; of certain stretches of time all together, as slice 0."""
        slice_of = "0" if self._chosen else f"(start_ns - {self._origin}) / {SLICE_NS}"
        columns = ", ".join(
            [f"{slice_of} AS slice", *keys, *(f"MAX({c})" for c in maxima), *(f"SUM({c})" for c in sums)]
        )
        spans = self._chosen or ((self._from, self._to),)
        within = " OR ".join("start_ns >= ? AND start_ns < ?" for _ in spans)
        return self._all(
            f"SELECT {columns} FROM {table} WHERE node_id = ? AND ({within})"
            f" GROUP BY slice, {', '.join(keys)}",
            (self._node, *(at for span in spans for at in span)),
        )

    def _spans(self, spans: Sequence[Span]) -> SpanRows:
        self._chosen = tuple(spans)
        try:
            read = (self._threads, self._operations, self._culprits, self._wakers)
            return {name: rows() for name, rows in zip(SUMMED, read, strict=True)}
        finally:
            self._chosen = ()

    def _seconds(self, pid: int) -> Records:
        if pid not in self._asked:
            self._asked[pid] = self._read_seconds(pid)
        found: Records = self._asked[pid]
        return found

    def _read_seconds(self, pid: int) -> Records:
        rows = self._all(
            "SELECT CAST(start_ns AS INTEGER), CAST(op_id AS INTEGER), CAST(TOTAL(count) AS INTEGER),"
            " CAST(MIN(exact) AS INTEGER) FROM operation_second"
            " WHERE node_id = ? AND start_ns >= ? AND start_ns < ? AND pid = ? GROUP BY 1, 2",
            (*self._range, pid),
        )
        return np.array(rows, model.SECONDS)

    def _freed_nothing(self, pid: int) -> dict[int, int]:
        rows = self._all(
            f"SELECT (e.ts_ns - {self._origin}) / {SLICE_NS}, CAST(TOTAL(e.weight) AS INTEGER) FROM event e"
            " WHERE e.id BETWEEN ? AND ? AND e.pid = ? AND e.arg0 = 0 AND e.ret = 0 AND e.ts_ns >= ?"
            f" AND e.ts_ns < ? AND e.flags & {int(CallFlag.CALL_NESTED)} = 0"
            " AND e.op_id IN (SELECT id FROM op WHERE kind = 'free') GROUP BY 1",
            (*self._ids, pid, self._from, self._to),
        )
        return {int(number): count for number, count in rows if isinstance(number, int)}

    def _busy(self, gpu_ids: Collection[int], spans: Sequence[Span]) -> float | None:
        """Of the busiest card; a sample tells of the second before it."""
        marks = ", ".join("?" for _ in gpu_ids)
        within = " OR ".join("at_ns >= ? AND at_ns < ?" for _ in spans)
        rows = self._all(
            f"SELECT AVG(gpu_share) FROM gpu_sample WHERE node_id = ? AND gpu_id IN ({marks}) AND ({within})"
            " GROUP BY gpu_id",
            (self._node, *gpu_ids, *(at + model.GPU_LAG_NS for span in spans for at in span)),
        )
        shares = [row[0] for row in rows if isinstance(row[0], float) and math.isfinite(row[0])]
        return min(1.0, max(0.0, *shares)) if shares else None

    def _windows(self, pid: int, tid: int) -> dict[int, int]:
        if (pid, tid) not in self._asked:
            self._asked[pid, tid] = self._read_windows(pid, tid)
        found: dict[int, int] = self._asked[pid, tid]
        return found

    def _read_windows(self, pid: int, tid: int) -> dict[int, int]:
        return dict(
            self._all(
                f"SELECT CAST(start_ns AS INTEGER), CAST(TOTAL({' + '.join(BUCKET_COLUMNS)}) AS INTEGER)"
                " FROM thread_second"
                " WHERE node_id = ? AND start_ns >= ? AND start_ns < ? AND pid = ? AND tid = ? GROUP BY 1",
                (*self._range, pid, tid),
            )
        )

    def _threads(self) -> Records:
        scalars = (
            "throttled_ns", "late_ns", "system_ns", "known", "gil_ns",
            "voluntary_switches", "involuntary_switches", "major_faults",
        )  # fmt: skip
        rows = self._sums(
            "thread_second", ("pid", "tid"), (*scalars, *BUCKET_COLUMNS, *GAP_COLUMNS), ("comm_id", "feeder")
        )
        return _records(
            rows, model.THREADS, ("slice", "pid", "tid", "comm", "feeder", *scalars), ("ns", "gap")
        )

    def _operations(self) -> Records:
        plain = ("count", "sum_ns", "bytes", "errors", "recorded")
        rows = self._sums(
            "operation_second",
            ("pid", "op_id", "caller"),
            (*plain, "1 - exact", "count_error", *BUCKET_COLUMNS),
            ("max_ns",),
        )
        names = ("slice", "pid", "op", "caller", "max_ns", *plain, "estimated", "error")
        return _records(rows, model.OPERATIONS, names, ("split",))

    def _culprits(self) -> Records:
        rows = self._sums(
            "culprit", ("victim_pid", "victim_tid", "pid", "throttled"), ("ns", "count"), ("comm_id",)
        )
        return _records(
            rows,
            model.CULPRITS,
            ("slice", "victim_pid", "victim_tid", "pid", "throttled", "comm", "ns", "count"),
        )

    def _wakers(self) -> Records:
        keys = ("pid", "tid", "waker_pid", "waker_tid", "kind", "bucket")
        rows = self._sums("waker", keys, ("ns", "count"), ("comm_id",))
        return _records(rows, model.WAKERS, ("slice", *keys, "comm", "ns", "count"))

    def _processes(self) -> Iterable[model.ProcessFact]:
        # The latest bearer of a number within the range stands for it.
        columns = (
            "pid", "comm", "cmdline", "parent_pid", "start_ns", "end_ns", "exit_code", "cgroup_id",
            "container", "rank", "uid", "listens", "cpus", "world_size", "pod", "namespace", "runtime",
        )  # fmt: skip
        # A recording of before does not have them, and is read as it is.
        has_cpus = self._all("SELECT 1 FROM pragma_table_info('process') WHERE name = 'cpus'")
        rows = self._all(
            "SELECT p.pid, p.comm, p.cmdline, p.parent_pid, p.start_ns, p.end_ns, p.exit_code, p.cgroup_id,"
            " COALESCE(c.namespace || '/' || c.pod, c.pod, c.container_id, c.job), p.rank, p.uid, p.listens,"
            f" {'p.cpus' if has_cpus else 'NULL'}, p.world_size, c.pod, c.namespace, c.runtime FROM process p"
            " LEFT JOIN container c ON c.cgroup_id = p.cgroup_id AND c.node_id = p.node_id"
            " WHERE p.node_id = ? AND (p.end_ns IS NULL OR p.end_ns >= ?)"
            " AND COALESCE(p.first_seen_ns, p.start_ns, 0) < ? ORDER BY p.start_ns",
            self._range,
        )
        for row in rows:
            known = dict(zip(columns, row, strict=True))
            known["comm"] = known["comm"] or f"pid {known['pid']}"
            known["listens"] = None if known["listens"] is None else bool(known["listens"])
            known["cpus"] = cpus_of(known["cpus"])
            for name in ("start_ns", "end_ns", "world_size"):  # the file may come from anybody
                known[name] = known[name] if isinstance(known[name], int) else None
            yield model.ProcessFact(**known)

    def _id_range(self) -> tuple[int, int]:
        first, last = self._one(
            "SELECT MIN(first_id), MAX(last_id) FROM window"
            " WHERE node_id = ? AND end_ns > ? AND start_ns < ?",
            self._range,
        )
        return (first, last) if first is not None else (1, 0)

    def _complete_from(self) -> int | None:
        """Retention takes the oldest rows first: where an older one is left, nothing is missing."""
        first, last = self._ids
        base = self._node << NODE_SHIFT
        older = self._all("SELECT 1 FROM event WHERE id >= ? AND id < ? LIMIT 1", (base, first))
        if older or last < first:
            return None
        rows = self._all(
            "SELECT id, CAST(ts_ns AS INTEGER) FROM event WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 1",
            (first, last),
        )
        if not rows:
            return self._to
        return None if rows[0][0] == first else int(rows[0][1])

    def _event_id(self, number: int) -> str:
        if not hasattr(self, "_name"):
            self._name = self._one("SELECT name FROM node WHERE id = ?", (self._node,))[0]
        return f"{self._name}:{number & SEQ_MASK}"

    def _errors(self, found: Facts) -> Iterable[model.ErrorFact]:
        rows = self._all(
            "SELECT pid, tid, op_id, ret, COUNT(*), MIN(ts_ns), MAX(ts_ns), MIN(id) FROM event"
            f" WHERE id BETWEEN ? AND ? AND why & {int(Why.WHY_ERROR)} AND ts_ns >= ? AND ts_ns < ?"
            " GROUP BY pid, op_id, ret",
            (*self._ids, self._from, self._to),
        )
        for pid, tid, op, code, count, first, last, number in rows:
            yield model.ErrorFact(
                pid, tid, found.ops[op].name, code, count, first, last, self._event_id(number)
            )

    def _host_events(self, op: str, layer: str, more: str = "", join: str = "") -> list[Row]:
        numbers = self._all("SELECT id FROM op WHERE name = ? AND layer = ?", (op, layer))
        if not numbers:  # never happened: do not look through all events for it
            return []
        return self._all(
            f"SELECT e.ts_ns, e.pid, s.text, e.id{more} FROM event e LEFT JOIN string s ON s.id = e.comm_id"
            f" {join} WHERE e.id BETWEEN ? AND ? AND e.op_id = ? AND e.ts_ns >= ? AND e.ts_ns < ?"
            f" LIMIT {MAX_INCIDENTS}",
            (*self._ids, numbers[0][0], self._from, self._to),
        )

    def _incidents(self, op: str) -> Iterable[model.Incident]:
        for at, pid, comm, number in self._host_events(op, "host"):
            yield model.Incident(at, pid, comm, self._event_id(number))

    def _xids(self) -> Iterable[model.Incident]:
        rows = self._host_events(
            "xid", "host", ", e.arg0, d.device, d.message", "LEFT JOIN xid_detail d ON d.event_id = e.id"
        )
        for at, pid, comm, number, code, device, message in rows:
            yield model.Incident(
                at, pid, comm, self._event_id(number), code, f"{device or ''} {message or ''}"
            )

    def _retransmits(self) -> Iterable[model.Incident]:
        rows = self._host_events(
            "retransmit",
            "tcp",
            ", d.remote_address, d.remote_port, d.peer_pid",
            "LEFT JOIN tcp_detail d ON d.event_id = e.id",
        )
        for at, pid, comm, number, address, port, peer in rows:
            yield model.Incident(at, pid, comm, self._event_id(number), None, f"{address}:{port}", peer)

    def _in_flight(self, found: Facts) -> Iterable[model.InFlight]:
        rows = self._all(
            "SELECT pid, tid, op_id, since_ns, last_seen_ns, bucket, CAST(before_attach AS INTEGER)"
            " FROM in_flight"
            " WHERE node_id = ? AND last_seen_ns >= ? AND since_ns < ?",
            self._range,
        )
        for pid, tid, op, since, seen, bucket, flags in rows:
            name = found.ops[op].name if op in found.ops else None
            entered = not flags & InFlightFlag.CALL_BEFORE
            nccl = None if entered else bool(flags & InFlightFlag.WITH_NCCL)
            died = bool(flags & InFlightFlag.DIED)
            yield model.InFlight(pid, tid, name, since, seen, BUCKET_NAMES[bucket], entered, died, nccl)

    def _arrivals(self, found: Facts) -> list[model.Arrival]:
        # a group of one waits for nobody
        rows = self._all(
            "SELECT c.comm_hash, c.seq, e.op_id, c.rank, c.nranks, e.pid, e.ts_ns, e.bytes FROM collective c"
            " CROSS JOIN event e ON e.id = c.event_id WHERE c.event_id BETWEEN ? AND ? AND c.seq IS NOT NULL"
            " AND c.rank IS NOT NULL AND c.nranks > 1 AND c.peer IS NULL AND e.ts_ns >= ? AND e.ts_ns < ?"
            f" ORDER BY c.event_id DESC LIMIT {MAX_ARRIVALS}",
            (*self._ids, self._from, self._to),
        )
        names = {number: op.name for number, op in found.ops.items()}
        return [model.Arrival(comm, seq, names[op], *rest) for comm, seq, op, *rest in rows]

    def _standing(self, found: Facts) -> list[model.Arrival]:
        """Those with a root are collectives like others; of calls to one peer none has a number."""
        rows = self._all(
            "SELECT c.comm_hash, MAX(COALESCE(c.seq, -1)), e.op_id, c.rank, c.nranks, e.pid, e.ts_ns, e.bytes"
            " FROM collective c CROSS JOIN event e ON e.id = c.event_id WHERE c.event_id BETWEEN ? AND ?"
            " AND c.comm_hash IS NOT NULL AND c.rank IS NOT NULL AND c.nranks > 1 AND e.ts_ns >= ?"
            " AND e.ts_ns < ? GROUP BY c.comm_hash, c.rank, e.pid",
            (*self._ids, self._from, self._to),
        )
        names = {number: op.name for number, op in found.ops.items()}
        return [model.Arrival(comm, seq, names.get(op, "?"), *rest) for comm, seq, op, *rest in rows]

    def _nameless(self, found: Facts) -> dict[int, int]:
        numbers = [number for number, op in found.ops.items() if op.kind == "collective"]
        return dict(
            self._all(
                "SELECT e.pid, CAST(MAX(e.ts_ns) AS INTEGER) FROM collective c CROSS JOIN event e"
                " ON e.id = c.event_id WHERE c.event_id BETWEEN ? AND ? AND c.comm_hash IS NULL"
                f" AND e.ts_ns >= ? AND e.ts_ns < ? AND e.op_id IN ({_marks_for(numbers)}) GROUP BY e.pid",
                (*self._ids, self._from, self._to, *numbers),
            )
        )

    def _unmatched(self, found: Facts) -> Iterable[model.Arrival]:
        """Of communicators we did not see being made: their collectives have no number. Where nothing
        could be read of the communicator, the rank is what the process was told."""
        rows = self._all(
            "SELECT COALESCE(c.comm_hash, p.parent_pid, 0), e.op_id, COALESCE(c.rank, p.rank),"
            " COALESCE(c.nranks, p.world_size) AS size, e.pid, e.ts_ns, e.bytes"
            " FROM collective c CROSS JOIN event e ON e.id = c.event_id"
            " LEFT JOIN process p ON p.id = e.process_id"
            " WHERE c.event_id BETWEEN ? AND ? AND c.seq IS NULL AND c.peer IS NULL"
            " AND COALESCE(c.rank, p.rank) IS NOT NULL AND size > 1 AND e.ts_ns >= ? AND e.ts_ns < ?"
            f" ORDER BY c.event_id DESC LIMIT {MAX_ARRIVALS}",
            (*self._ids, self._from, self._to),
        )
        ends = self._wait_ends(found, {row[4] for row in rows})
        for group, op, rank, nranks, pid, at, size in rows:
            if op in found.ops and found.ops[op].kind == "collective":
                following = int(np.searchsorted(ends[pid], at, "right"))
                done = int(ends[pid][following]) if following < len(ends[pid]) else 0
                yield model.Arrival(group, -1, found.ops[op].name, rank, nranks, pid, at, size, done)

    def _wait_ends(self, found: Facts, pids: Collection[int]) -> dict[int, NDArray[np.int64]]:
        """When processes' waits for the GPU were over, as far as they have records."""
        syncs = [number for number, op in found.ops.items() if op.kind == "sync"]
        rows = self._all(
            "SELECT pid, ts_ns + duration_ns FROM event WHERE id BETWEEN ? AND ?"
            f" AND op_id IN ({_marks_for(syncs)}) AND pid IN ({_marks_for(pids)})"
            f" ORDER BY id DESC LIMIT {MAX_ARRIVALS}",
            (*self._ids, *syncs, *pids),
        )
        table = np.array(rows, np.int64).reshape(-1, 2)
        return {pid: np.sort(table[table[:, 0] == pid, 1]) for pid in pids}

    def _gpus(self) -> dict[int, set[int]]:
        rows = self._all(
            "SELECT DISTINCT pid, gpu_id FROM event WHERE id BETWEEN ? AND ? AND gpu_id IS NOT NULL",
            self._ids,
        )
        cards: dict[int, set[int]] = {}
        for pid, gpu in rows:
            cards.setdefault(pid, set()).add(gpu)
        return cards

    def _system(self) -> Iterable[model.SystemFact]:
        for row in self._all(
            "SELECT at_ns, cpu_share, memory_share, memory_available_bytes, load1, swap_bytes, psi_cpu_some,"
            " psi_memory_some, psi_io_some FROM system_sample"
            " WHERE node_id = ? AND at_ns >= ? AND at_ns <= ? ORDER BY at_ns",
            self._range,
        ):
            yield model.SystemFact(*row)

    def _losses(self) -> Iterable[model.LossFact]:
        for row in self._all(
            "SELECT s.text, SUM(l.count), MIN(l.start_ns), MAX(l.end_ns) FROM loss l"
            " JOIN string s ON s.id = l.reason_id WHERE l.node_id = ? AND l.end_ns > ? AND l.start_ns < ?"
            " GROUP BY l.reason_id",
            self._range,
        ):
            yield model.LossFact(*row)

    def _longest(self, tid: int, bucket: str, from_ns: int, to_ns: int) -> list[str]:
        rows = self._all(
            "SELECT id FROM event WHERE id BETWEEN ? AND ? AND tid = ? AND ts_ns >= ? AND ts_ns < ?"
            " AND op_id = (SELECT id FROM op WHERE layer = 'host' AND name = ?)"
            f" ORDER BY duration_ns DESC LIMIT {SHOWN_WAITS}",
            (*self._ids, tid, from_ns, to_ns, bucket),
        )
        return [self._event_id(number) for (number,) in rows]

    def _marks(self, pid: int, op: int) -> model.Marks:
        rows = self._all(
            "SELECT ts_ns, duration_ns FROM event WHERE id BETWEEN ? AND ? AND op_id = ? AND pid = ?"
            f" AND ts_ns >= ? AND ts_ns < ? ORDER BY id DESC LIMIT {MAX_MARKS}",
            (*self._ids, op, pid, self._from, self._to),
        )
        found = np.array(rows, np.int64).reshape(-1, 2)
        return found[np.argsort(found[:, 0], kind="stable")]

    def _stalls(self, tid: int, least_ns: int) -> model.Marks:
        rows = self._all(
            "SELECT ts_ns, duration_ns FROM event WHERE id BETWEEN ? AND ? AND tid = ? AND duration_ns >= ?"
            " AND op_id IN (SELECT id FROM op WHERE layer = 'host'"
            f" AND name IN ({_marks_for(STALLS)})) AND ts_ns >= ? AND ts_ns < ?"
            f" ORDER BY id DESC LIMIT {MAX_MARKS}",
            (*self._ids, tid, least_ns, *STALLS, self._from, self._to),
        )
        found = np.array(rows, np.int64).reshape(-1, 2)
        return found[np.argsort(found[:, 0], kind="stable")]


def _marks_for(values: Collection[object]) -> str:
    """Places for so many values in a statement."""
    return ", ".join("?" * len(values))


def _records(
    rows: list[Row], dtype: np.dtype[np.void], names: tuple[str, ...], arrays: tuple[str, ...] = ()
) -> Records:
    """Rows of numbers as records; the arrays fill the columns behind the names."""
    found = np.zeros(len(rows), dtype)
    if not rows:
        return found
    table = np.array([[0 if value is None else value for value in row] for row in rows], np.int64)
    for at, name in enumerate(names):
        found[name] = table[:, at]
    at = len(names)
    for name in arrays:
        width = dtype[name].shape[0]
        found[name] = table[:, at : at + width]
        at += width
    return found
