"""The meter: windows and views added up into the series that monitoring reads.

The agent adds a window a second; whoever is asked for metrics, in whatever thread, takes a
snapshot. Nothing is read from the database and nothing is done per event. The number of
series is bounded (model.metrics.Limits): who finds no seat is counted with `other`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from math import isnan

from ingero import __version__
from ingero.clock import Clock
from ingero.detectors import LOOKED_FOR
from ingero.model.finding import Finding, Severity
from ingero.model.gpus import UNPRICED, Prices
from ingero.model.layout import Loss
from ingero.model.live import LiveView
from ingero.model.metrics import USUAL, Distribution, SeriesLimits, SeriesPoint, Snapshot
from ingero.model.operations import Operation
from ingero.model.window import BUCKET_NAMES, Window
from ingero.serve.answers.gpu_metrics import KEPT_NS, SETTLED_NS, GpuSeries, GpuTimeHeld, GpuTimeSpent
from ingero.serve.answers.live import events_in
from ingero.serve.answers.moved_bytes import allocated, copied
from ingero.serve.answers.process_metrics import NOBODY, OperationCalls, People, ProcessSeries, Seats
from ingero.units import HOUR

END_NS = (1 << 63) - 1  # later than all instants
FINDINGS = 64  # with series of their own
PEOPLE = 2048  # of those who left; 1.5 KB each
REMEMBERED = 4096  # findings
LOSSES = [each.name.removeprefix("LOSS_").lower() for each in Loss if each is not Loss.LOSSES]
# A 0 says that there is none: not said of kinds that nobody looks for.
KINDS_OF_FINDINGS = [(kind, str(severity)) for kind in LOOKED_FOR for severity in Severity]
ADDED = ("count", "errors", "bytes", "sum_ns", "max_ns")  # as metric_accounts.Calls.add takes them
Row = tuple[str, tuple[str, ...], float | Distribution, int | None]  # metric, labels, value, since


class Meter:
    """Counts in windows, tells snapshots; any thread may ask."""

    def __init__(
        self,
        operations: Iterable[Operation],
        clock: Clock,
        node: str,
        limits: SeriesLimits = USUAL,
        prices: Prices = UNPRICED,
    ) -> None:
        self._operations = {operation.number: operation for operation in operations}
        self._clock, self._node, self._limits = clock, node, limits
        self._lock = threading.Lock()
        self._people = People()
        self._start_ns: int | None = None  # monotonic, of the first window
        self._accounts: Seats[int, ProcessSeries] = Seats(limits.processes, limits.keep_ns, self._new_account)
        self._nobody: ProcessSeries | None = None
        self._gpus, self._held, self._spent = GpuSeries(), GpuTimeHeld(prices), GpuTimeSpent()
        self._currency = prices.currency
        self._events = self._hits = self._agent_cpu_ns = 0
        self._xids: dict[str, int] = {}
        self._found: dict[tuple[str, str], int] = {}
        self._told: dict[str, int] = {}  # findings that were counted, and until when they lasted
        self._view: LiveView | None = None
        self._read_at_ns = time.time_ns()
        self._made: Snapshot | None = None

    # --- the agent's side -------------------------------------------------------------

    def add(self, window: Window) -> None:
        """Count one window in."""
        with self._lock:
            self._made = None
            self._start_ns = window.start_ns if self._start_ns is None else self._start_ns
            self._read_at_ns = time.time_ns()
            for pid in self._people.meet(window.processes, window.containers):
                self._accounts.leave(pid)
            self._add_operations(window)
            self._add_threads(window)
            self._events += events_in(window)
            self._hits += window.hits
            self._agent_cpu_ns += window.agent_cpu_ns
            for code in window.xids["code"].tolist():
                self._xids[str(code)] = self._xids.get(str(code), 0) + 1
            self._gpus.add(window.gpus, window.end_ns)
            self._add_held(window)
            self._accounts.leave_idle(window.start_ns)
            if len(self._people) > PEOPLE:
                self._people.forget_all_but({int(pid) for pid in window.threads["pid"]})

    def observe(self, view: LiveView, last: bool = False) -> None:
        """What only the live view knows: findings, losses, overhead, database. `last`: it is over."""
        with self._lock:
            self._made = None
            before, self._view = self._view, view
            if before is None or view.findings is not before.findings:
                self._count_findings(view.findings)
            if view.looked_ns is not None and (last or before is None or view.looked_ns != before.looked_ns):
                self._spent.settle(view.findings, END_NS if last else view.looked_ns - SETTLED_NS)

    def _new_account(self, pid: int, now_ns: int) -> ProcessSeries:
        return ProcessSeries(self._people.who(pid), now_ns, self._limits)

    def _account(self, pid: int, now_ns: int) -> ProcessSeries:
        found = self._accounts.take(pid, now_ns)
        if found is None:
            self._nobody = found = self._nobody or ProcessSeries(NOBODY, now_ns, self._limits)
        return found

    def _add_operations(self, window: Window) -> None:
        rows, at_ns = window.operations, window.start_ns
        # Columns as lists: a field of a record costs as much as the rest of the loop.
        columns = (rows[name].tolist() for name in ("pid", "op", *ADDED))
        for slots, pid, op, *sums in zip(rows["slots"], *columns, strict=True):
            operation = self._operations.get(op)
            if operation is not None:
                account = self._account(pid, at_ns)
                calls = account.calls_of((operation.layer, operation.name), at_ns)
                calls.add(*sums)
                calls.slots += slots
                if operation.kind == "collective":
                    made, size = account.collectives.get(operation.name, (0, 0))
                    account.collectives[operation.name] = made + sums[0], size + sums[2]
        for pid, direction, size in copied(window, self._operations):
            told = self._account(pid, window.start_ns).copied_bytes
            told[direction] = told.get(direction, 0) + size
        for pid, size in allocated(window, self._operations):
            account = self._account(pid, window.start_ns)
            account.allocated_bytes = (account.allocated_bytes or 0) + size

    def _add_threads(self, window: Window) -> None:
        feeding = window.threads[window.threads["feeder"]]
        idle = feeding["gap"].sum(axis=1).tolist()
        for pid, ns, idle_ns in zip(feeding["pid"].tolist(), feeding["ns"], idle, strict=True):
            account = self._account(pid, window.start_ns)
            account.time_ns += ns
            account.idle_ns += idle_ns

    def _add_held(self, window: Window) -> None:
        """A process that holds a GPU and does nothing with it has its series all the more."""
        for pid, look in self._held.add(window.gpus):
            account = self._account(pid, window.start_ns)
            account.held_ns += look.held_ns
            if not isnan(look.busy_ns):
                account.gpu_busy_ns = (account.gpu_busy_ns or 0.0) + look.busy_ns
            account.money += look.held_ns * look.price / HOUR
            self._spent.add(pid, account, look._replace(at_ns=self._clock.wall_ns(look.at_ns)))
        self._spent.forget(self._clock.wall_ns(window.end_ns) - KEPT_NS)

    def _count_findings(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            until_ns = self._told.pop(finding.key, None)
            if until_ns is None or finding.first_ns > until_ns:  # else the same one, seen again
                name = finding.kind, str(finding.severity)
                self._found[name] = self._found.get(name, 0) + 1
            self._told[finding.key] = max(finding.last_ns, until_ns or 0)
        while len(self._told) > REMEMBERED:
            self._told.pop(next(iter(self._told)))

    # --- whoever asks -------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Every series now; the same object until something was added."""
        with self._lock:
            if self._made is None:
                self._made = self._snapshot()
            return self._made

    def _snapshot(self) -> Snapshot:
        start_ns = self._clock.now_ns if self._start_ns is None else self._clock.wall_ns(self._start_ns)
        points: dict[str, list[SeriesPoint]] = {}
        for name, labels, value, since_ns in self._rows():
            since = start_ns if since_ns is None else self._clock.wall_ns(since_ns)
            points.setdefault(name, []).append(SeriesPoint(labels, value, since))
        view = self._view
        at_ns = view.now_ns if view else start_ns
        return Snapshot(at_ns, start_ns, self._node, points, view.findings if view else ())

    def _rows(self) -> Iterator[Row]:
        diagnosed = self._view is not None and self._view.database.path is not None
        for account in (*self._accounts, *([self._nobody] if self._nobody else [])):
            yield from _account_rows(account)
            yield from _spent_rows(account, self._currency, diagnosed)
        yield "build.info", (__version__, self._node), 1, None
        yield "events", (), self._events, None
        yield "probe.hits", (), self._hits, None
        yield "agent.cpu.time", (), self._agent_cpu_ns / 1e9, None
        yield "agent.last_window.timestamp", (), self._read_at_ns / 1e9, None
        for code, count in sorted(self._xids.items())[:FINDINGS]:
            yield "gpu.xid.errors", (code,), count, None
        yield from self._gpus.rows(self._labels)
        if self._view is not None:
            yield from self._view_rows(self._view)

    def _view_rows(self, view: LiveView) -> Iterator[Row]:
        yield from _machine_rows(view)
        yield from _agent_rows(view)
        yield from self._in_flight_rows(view)
        if view.database.path is None:
            return  # without a recording nothing is diagnosed: unknown, not none
        current = dict.fromkeys(
            KINDS_OF_FINDINGS, 0
        )  # a series that begins with its first 1 shows no increase
        for finding in view.findings:
            name = finding.kind, str(finding.severity)
            current[name] = current.get(name, 0) + 1
        for name, count in current.items():
            yield "findings", name, count, None
        for name, count in (dict.fromkeys(KINDS_OF_FINDINGS, 0) | self._found).items():
            yield "findings.found", name, count, None
        for finding in view.findings[:FINDINGS]:
            if finding.effect.wall_share is not None:
                labels = (*self._labels(finding.victim.pid), finding.kind, str(finding.severity))
                yield "finding.lost_time", labels, finding.effect.wall_share, None

    def _in_flight_rows(self, view: LiveView) -> Iterator[Row]:
        longest: dict[tuple[str, ...], int] = {}
        for call in view.in_flight[:FINDINGS]:
            labels = (*self._labels(call.pid), call.op)
            longest[labels] = max(longest.get(labels, 0), call.duration_ns)
        for labels, ns in longest.items():
            yield "call.in_flight", labels, ns / 1e9, None

    def _labels(self, pid: int) -> tuple[str, ...]:
        account = self._accounts.get(pid)
        return (account.who if account else self._people.who(pid)).labels


def _account_rows(account: ProcessSeries) -> Iterator[Row]:
    who, since = account.who.labels, account.start_ns
    if account.who is not NOBODY:
        yield "process.info", (*who, *account.who.more), 1, since
    for bucket, ns in zip(BUCKET_NAMES, account.time_ns.tolist(), strict=True):
        if ns:
            yield "thread.time", (*who, bucket), ns / 1e9, since
    if account.time_ns.any():
        yield "gpu.idle.time", who, account.idle_ns / 1e9, since
    if account.allocated_bytes is not None:
        yield "gpu.allocated", who, account.allocated_bytes, since
    for direction, size in account.copied_bytes.items():
        yield "gpu.memcpy", (*who, direction), size, since
    for op, (count, size) in account.collectives.items():
        yield "collective.calls", (*who, op), count, since
        yield "collective.size", (*who, op), size, since
    for calls in account.calls():
        yield from _calls_rows(who, calls)


def _spent_rows(account: ProcessSeries, currency: str, diagnosed: bool) -> Iterator[Row]:
    who, since = account.who.labels, account.start_ns
    if not account.held_ns:
        return
    yield "gpu.held.time", who, account.held_ns / 1e9, since
    if not isnan(account.money):
        yield "gpu.cost", (*who, currency), account.money, since
    if account.gpu_busy_ns is None:
        return  # nobody knows when it was idle
    yield "gpu.busy.time", who, account.gpu_busy_ns / 1e9, since
    if diagnosed:
        yield "gpu.idle_without_finding.time", who, account.spare_ns / 1e9, since
    for kind, ns in account.lost_ns.items():
        yield "gpu.lost.time", (*who, kind), ns / 1e9, since
    if not isnan(account.money):
        for kind, money in account.lost_money.items():
            yield "gpu.cost.lost", (*who, kind, currency), money, since


def _calls_rows(who: tuple[str, ...], calls: OperationCalls) -> Iterator[Row]:
    labels, since = (*who, *calls.name), calls.start_ns
    yield "operation.calls", labels, calls.count, since
    yield "operation.errors", labels, calls.errors, since
    if calls.slots.any():
        timed = Distribution(calls.slots.copy(), calls.sum_ns, calls.max_ns)
        yield "operation.duration", labels, timed, since


def _machine_rows(view: LiveView) -> Iterator[Row]:
    system = view.system
    if system is None:
        return
    told = {
        "system.cpu": system.cpu_share,
        "system.memory": system.memory_share,
        "system.memory.available": system.memory_available_bytes,
        "system.load1": system.load1,
        "system.swap": system.swap_bytes,
    }
    yield from ((name, (), float(value), None) for name, value in told.items() if value is not None)


def _agent_rows(view: LiveView) -> Iterator[Row]:
    yield "targets", (), len(view.targets), None
    probes: dict[str, int] = {}
    for each in view.probes:
        probes[each.source] = probes.get(each.source, 0) + each.attached
    for source, attached in probes.items():
        yield "probes", (source,), attached, None
    for reason, count in (dict.fromkeys(LOSSES, 0) | dict(view.losses)).items():
        yield "lost.events", (reason,), count, None
    told = {
        "overhead": view.overhead.share,
        "overhead.budget": view.overhead.budget_share,
        "overhead.taken_from_jobs": view.overhead.taken_from_job_share,
        "overhead.bystanders": view.overhead.bystanders_share,
    }
    yield from ((name, (), value, None) for name, value in told.items() if value is not None)
    if view.database.path is not None:
        if view.database.size_bytes is not None:
            yield "database.size", (), view.database.size_bytes, None
        yield "database.working", (), float(not view.database.problem), None
