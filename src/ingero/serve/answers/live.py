"""Windows added up into what the live view shows.

Totals run from the start of the trace; percentiles come from the merged
histograms, so they are those of every call, not of the recorded ones. Long-lived
traces meet many processes: only the last PROCESSES of them keep rows of their
own, the totals keep everything. Targets, probes, overhead and database are the
agent's to add (dataclasses.replace).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ingero import units
from ingero.model import histogram
from ingero.model.layout import Bucket
from ingero.model.live import HostRow, LiveCall, LiveView, OperationRow, ProcessRow, SystemLine, ThreadRow
from ingero.model.operations import Operation
from ingero.model.window import BUCKET_NAMES, BUCKETS, Records, SystemSample, Window
from ingero.serve.answers.live_cards import LiveCards
from ingero.serve.answers.live_history import LiveHistory
from ingero.serve.answers.live_lines import LineBook, Lines

PROCESSES = 128
THREADS = 512  # of one process; its totals keep those dropped
NAMES = 256
SHOWN_PROCESSES = 32
LATELY = 5  # windows that are *now*: what a person takes in at a look, and steady enough to read
LONG_TAIL = 10  # p99 that many times p50 is worth a flag
LONG_TAIL_CALLS = 10
LONG_CALL_NS = 1_000_000_000
SHARES = (0.5, 0.95, 0.99)


@dataclass
class _Calls:
    """One operation, added up."""

    count: int = 0
    sum_ns: int = 0
    max_ns: int = 0
    errors: int = 0
    bytes: int = 0
    exact: bool = True
    slots: histogram.Counts = field(default_factory=lambda: np.zeros(histogram.SLOTS, np.uint64))
    lines: Lines = field(default_factory=Lines)

    def add(self, row: np.void) -> None:
        self.count += int(row["count"])
        self.sum_ns += int(row["sum_ns"])
        self.max_ns = max(self.max_ns, int(row["max_ns"]))
        self.errors += int(row["errors"])
        self.bytes += int(row["bytes"])
        self.slots += row["slots"]
        self.exact = self.exact and not row["estimated"]


@dataclass
class _Waits:
    """The recorded waits of one bucket, and who ended or caused them."""

    count: int = 0
    max_ns: int = 0
    slots: histogram.Counts = field(default_factory=lambda: np.zeros(histogram.SLOTS, np.uint64))
    who_ns: dict[str, int] = field(default_factory=dict)


@dataclass
class _Thread:
    """One thread, added up."""

    comm: str = ""
    feeder: bool = False
    ns: histogram.Counts = field(default_factory=lambda: np.zeros(BUCKETS, np.uint64))


@dataclass
class _Process:
    """One process, added up."""

    comm: str
    start_ns: int = 0
    wall_ns: int = 0
    calls: dict[int, _Calls] = field(default_factory=dict)
    threads: dict[int, _Thread] = field(default_factory=dict)
    culprits_ns: dict[str, int] = field(default_factory=dict)
    feeders_ns: histogram.Counts = field(default_factory=lambda: np.zeros(BUCKETS, np.uint64))


class LiveTotals:
    """Everything seen since the start."""

    def __init__(self, operations: Iterable[Operation], node: str = "", *, recent: bool = False) -> None:
        """`recent`: also tell the last seconds, which costs as much again."""
        self._recent: deque[Window] | None = deque(maxlen=LATELY) if recent else None
        self._history = LiveHistory()
        self._operations = {operation.number: operation for operation in operations}
        self._node = node
        self._calls: dict[int, _Calls] = {}
        self._waits: dict[int, _Waits] = {}
        self._processes: dict[int, _Process] = {}
        self._feeders_ns = np.zeros(BUCKETS, np.uint64)
        self._losses: dict[str, int] = {}
        self._events = 0
        self._last: Window | None = None
        self._system_now: SystemSample | None = None
        self._cards = LiveCards()
        self._lines = LineBook()

    def add(self, window: Window) -> None:
        """Count one window in."""
        self._last = window
        self._system_now = window.system or self._system_now
        self._cards.add(window.gpus)
        self._events += events_in(window)
        for reason, count in window.losses.items():
            self._losses[reason] = self._losses.get(reason, 0) + count
        for process in window.processes:
            self._meet(process.pid, process.comm, process.start_ns)
        self._add_threads(window)
        self._add_operations(window.operations)
        self._add_lines(window)
        self._add_waits(window)
        if self._recent is not None:
            self._history.add(window)
            self._recent.append(_without_records(window))

    def _meet(self, pid: int, comm: str, start_ns: int = 0) -> _Process:
        known = self._processes.pop(pid, None)
        if known is None or (start_ns and known.start_ns and known.start_ns != start_ns):
            known = _Process(comm, start_ns)
        known.comm, known.start_ns = comm or known.comm, start_ns or known.start_ns
        self._processes[pid] = known  # the one met last stands last
        if len(self._processes) > PROCESSES:
            self._processes.pop(next(iter(self._processes)))
        return known

    def _add_operations(self, rows: Records) -> None:
        for row in rows:
            pid, op = int(row["pid"]), int(row["op"])
            process = self._meet(pid, "")
            self._calls.setdefault(op, _Calls()).add(row)
            process.calls.setdefault(op, _Calls()).add(row)

    def _add_lines(self, window: Window) -> None:
        self._lines.learn(window.stacks)
        for pid, op, source, ns in self._lines.sums(window):
            self._calls.setdefault(op, _Calls()).lines.add(source, ns)
            self._meet(pid, "").calls.setdefault(op, _Calls()).lines.add(source, ns)

    def _add_threads(self, window: Window) -> None:
        for row in window.threads:
            process = self._meet(int(row["pid"]), "")
            thread = _thread(process.threads, int(row["tid"]))
            thread.comm, thread.feeder = units.clean(bytes(row["comm"])), thread.feeder or bool(row["feeder"])
            thread.ns += row["ns"]
            if row["feeder"]:
                process.feeders_ns += row["ns"]
                self._feeders_ns += row["ns"]
        for pid in {int(pid) for pid in window.threads["pid"]}:
            self._meet(pid, "").wall_ns += window.end_ns - window.start_ns

    def _add_waits(self, window: Window) -> None:
        for bucket in np.unique(window.waits["bucket"]):
            chosen = window.waits[window.waits["bucket"] == bucket]["duration_ns"]
            waits = self._waits.setdefault(int(bucket), _Waits())
            waits.count += len(chosen)
            waits.max_ns = max(waits.max_ns, int(chosen.max()))
            slots = np.bincount(histogram.slot_of(chosen), minlength=histogram.SLOTS)
            waits.slots += slots.astype(np.uint64)
        for row in window.culprits:
            who = "CPU quota" if row["throttled"] else _name(row["comm"], row["pid"])
            self._blame(int(row["bucket"]), who, int(row["ns"]))
            process = self._processes.get(int(row["victim_pid"]))
            if process is not None:
                _credit(process.culprits_ns, who, int(row["ns"]))
        for row in window.wakers:
            self._blame(int(row["bucket"]), _name(row["comm"], row["waker_pid"]), int(row["ns"]))

    def _blame(self, bucket: int, who: str, ns: int) -> None:
        _credit(self._waits.setdefault(bucket, _Waits()).who_ns, who, ns)

    def view(self, now_ns: int, elapsed_ns: int, steps: Mapping[int, str] | None = None) -> LiveView:
        """What to show now; `steps`: the operation that marks a step, by process."""
        whole = self._whole(now_ns, elapsed_ns)
        if self._recent is None or self._last is None:
            return whole
        numbers = {operation.name: number for number, operation in self._operations.items()}
        ops = {pid: numbers[name] for pid, name in (steps or {}).items() if name in numbers}
        return replace(
            whole,
            history=self._history.view(now_ns, self._last.end_ns, ops),
            lately=self._lately(whole, self._recent),
        )

    def _lately(self, whole: LiveView, windows: Iterable[Window]) -> LiveView:
        """The last seconds alone; names and lines are those of the whole time."""
        totals = LiveTotals(self._operations.values(), self._node)
        length_ns = 0
        for window in windows:
            totals.add(window)
            length_ns += window.end_ns - window.start_ns
        view = totals._whole(whole.now_ns, length_ns)
        known = {row.pid: row for row in whole.processes}
        return replace(
            view,
            operations=_with_lines(view.operations, whole.operations),
            processes=tuple(_named(row, known.get(row.pid)) for row in view.processes),
        )

    def _whole(self, now_ns: int, elapsed_ns: int) -> LiveView:
        lost = sum(self._losses.values())
        return LiveView(
            now_ns=now_ns,
            elapsed_ns=elapsed_ns,
            node=self._node,
            system=self._system(),
            cards=self._cards.lines(),
            operations=self._rows(self._calls, int(self._feeders_ns.sum())),
            host=self._host(),
            processes=self._process_rows(),
            in_flight=self._in_flight(),
            events=self._events,
            events_per_s=self._rate(),
            losses=dict(self._losses),
            lost_share=lost / (lost + self._events) if lost else 0.0,
        )

    def _rate(self) -> float:
        if self._last is None or self._last.end_ns <= self._last.start_ns:
            return 0.0
        return events_in(self._last) * 1e9 / (self._last.end_ns - self._last.start_ns)

    def _system(self) -> SystemLine | None:
        now = self._system_now
        if now is None:
            return None
        return SystemLine(
            now.cpu_share, now.memory_share, now.memory_available_bytes, now.load1, now.cores, now.swap_bytes
        )

    def _rows(self, calls: Mapping[int, _Calls], wall_ns: int) -> tuple[OperationRow, ...]:
        rows = [self._row(op, sums, wall_ns) for op, sums in calls.items() if sums.count]
        return tuple(sorted(rows, key=lambda row: (-(row.wall_share or 0), -row.count, row.op)))

    def _row(self, op: int, sums: _Calls, wall_ns: int) -> OperationRow:
        operation = self._operations.get(op)
        p50, p95, p99 = histogram.percentiles(sums.slots, SHARES, max_ns=sums.max_ns or None)
        source, source_share = sums.lines.heaviest()
        return OperationRow(
            layer=operation.layer if operation else "driver",
            op=operation.name if operation else f"operation {op}",
            count=sums.count,
            p50_ns=p50,
            p95_ns=p95,
            p99_ns=p99,
            max_ns=sums.max_ns or None,
            wall_share=sums.sum_ns / wall_ns if wall_ns else None,
            errors=sums.errors,
            bytes=sums.bytes if operation and operation.bytes_known else None,
            exact=sums.exact,
            flags=_flags(sums.count, p50, p99),
            source=source,
            source_share=source_share,
        )

    def _host(self) -> tuple[HostRow, ...]:
        total = int(self._feeders_ns.sum())
        rows = [self._host_row(Bucket(number), total) for number in range(BUCKETS)]
        return tuple(sorted((row for row in rows if row.ns or row.waits), key=lambda row: -row.ns))

    def _host_row(self, bucket: Bucket, total_ns: int) -> HostRow:
        waits, ns = self._waits.get(bucket, _Waits()), int(self._feeders_ns[bucket])
        p50, p95, p99 = histogram.percentiles(waits.slots, SHARES, max_ns=waits.max_ns or None)
        who = tuple(sorted(waits.who_ns, key=lambda name: -waits.who_ns[name]))[:3]
        share = ns / total_ns if total_ns else 0.0
        return HostRow(BUCKET_NAMES[bucket], ns, share, waits.count, p50, p95, p99, waits.max_ns or None, who)

    def _process_rows(self) -> tuple[ProcessRow, ...]:
        rows = [self._process_row(pid, sums) for pid, sums in self._processes.items()]
        rows = [row for row in rows if row.threads_ns or row.operations]
        return tuple(sorted(rows, key=lambda row: -row.threads_ns)[:SHOWN_PROCESSES])

    def _process_row(self, pid: int, sums: _Process) -> ProcessRow:
        ns = sums.feeders_ns
        culprits = sorted(sums.culprits_ns.items(), key=lambda item: -item[1])[:10]
        return ProcessRow(
            pid=pid,
            comm=sums.comm,
            wall_ns=sums.wall_ns,
            threads_ns=int(ns.sum()),
            time_ns=_by_name(ns),
            threads=tuple(_thread_row(tid, thread) for tid, thread in sorted(sums.threads.items())),
            operations=self._rows(sums.calls, int(ns.sum())),
            culprits=tuple(culprits),
        )

    def _in_flight(self) -> tuple[LiveCall, ...]:
        if self._last is None:
            return ()
        calls = self._last.in_flight
        lasted = calls["now_ns"].astype(np.int64) - calls["call_start_ns"].astype(np.int64)
        long = calls[(calls["call_start_ns"] > 0) & (lasted >= LONG_CALL_NS) & (calls["dead"] == 0)]
        return tuple(sorted((self._call_in_flight(row) for row in long), key=lambda call: -call.duration_ns))

    def _call_in_flight(self, row: np.void) -> LiveCall:
        operation, header = self._operations.get(int(row["call_op"])), row["h"]
        bucket = int(row["open_bucket"])
        return LiveCall(
            pid=int(header["pid"]),
            tid=int(header["tid"]),
            comm=units.clean(bytes(header["comm"])),
            op=operation.name if operation else f"operation {row['call_op']}",
            duration_ns=int(row["now_ns"]) - int(row["call_start_ns"]),
            bucket=BUCKET_NAMES[bucket] if bucket < BUCKETS else "",
        )


def _without_records(window: Window) -> Window:
    """What is counted of it; the records of a second may be many."""
    return Window(
        window.start_ns,
        window.end_ns,
        operations=window.operations,
        threads=window.threads,
        waits=window.waits,
        culprits=window.culprits,
        wakers=window.wakers,
    )


def _with_lines(rows: Iterable[OperationRow], known: Iterable[OperationRow]) -> tuple[OperationRow, ...]:
    lines = {(row.layer, row.op): row for row in known}
    return tuple(
        replace(row, source=line.source, source_share=line.source_share)
        if (line := lines.get((row.layer, row.op)))
        else row
        for row in rows
    )


def _named(row: ProcessRow, known: ProcessRow | None) -> ProcessRow:
    if known is None:
        return row
    return replace(row, comm=known.comm, operations=_with_lines(row.operations, known.operations))


def _thread(threads: dict[int, _Thread], tid: int) -> _Thread:
    if tid not in threads and len(threads) >= THREADS:
        threads.pop(next(iter(threads)))
    return threads.setdefault(tid, _Thread())


def _credit(who_ns: dict[str, int], who: str, ns: int) -> None:
    who_ns[who] = who_ns.get(who, 0) + ns
    if len(who_ns) > NAMES:
        for small in sorted(who_ns, key=lambda name: who_ns[name])[: NAMES // 2]:
            del who_ns[small]


def events_in(window: Window) -> int:
    """Calls counted and kernel events recorded."""
    others = (window.waits, window.blocks, window.tcp, window.ooms, window.xids)
    return int(window.operations["count"].sum()) + sum(map(len, others))


def _flags(count: int, p50_ns: int | None, p99_ns: int | None) -> tuple[str, ...]:
    long_tail = p50_ns and p99_ns and p99_ns >= LONG_TAIL * p50_ns and count >= LONG_TAIL_CALLS
    return ("p99",) if long_tail else ()


def _name(comm: bytes, pid: int) -> str:
    return f"{units.clean(bytes(comm))} {int(pid)}" if pid else units.clean(bytes(comm)) or "unknown"


def _by_name(ns: histogram.Counts) -> dict[str, int]:
    return {name: int(ns[number]) for number, name in enumerate(BUCKET_NAMES) if ns[number]}


def _thread_row(tid: int, thread: _Thread) -> ThreadRow:
    return ThreadRow(tid, thread.comm, thread.feeder, int(thread.ns.sum()), _by_name(thread.ns))
