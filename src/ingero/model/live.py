"""What the live view shows: plain values, one LiveView a second, and who takes them.

Nothing here is formatted; the terminal application, the plain tables and the
JSON stream all render the same values. This is not where they are computed
(serve/answers/live.py). Instants are Unix-epoch nanoseconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ingero.model.finding import STATES, Finding, SourceLine
from ingero.model.gpus import UNPRICED, Prices
from ingero.model.metrics import SeriesLimits, Snapshot
from ingero.model.report import Bound

LAYERS = ("runtime", "driver", "graph", "nccl")
OVER_NS = 6_000_000_000  # three slices of the diagnosis without it: then it has ended


@dataclass(frozen=True)
class LiveTarget:
    """A process being traced."""

    pid: int
    comm: str
    cmdline: str = ""
    container: str = ""


@dataclass(frozen=True)
class ProbedLibrary:
    """A library file probes sit on."""

    path: str
    kind: str  # runtime, driver, nccl
    processes: int = 0


@dataclass(frozen=True)
class ProbeSource:
    """The probes of one source: how many are on, and why others are not."""

    source: str  # runtime, driver, graph, nccl, sched, memory, block, tcp, xid ...
    attached: int
    refused: int = 0
    reason: str = ""


@dataclass(frozen=True)
class SystemLine:
    """The machine now; None where the kernel does not tell."""

    cpu_share: float | None = None
    memory_share: float | None = None
    memory_available_bytes: int | None = None
    load1: float | None = None
    cores: int | None = None
    swap_bytes: int | None = None


@dataclass(frozen=True)
class CardLine:
    """A card now; None where its driver does not tell."""

    gpu_id: int
    name: str = ""
    gpu_share: float | None = None
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    sm_clock_mhz: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    temperature_c: int | None = None
    held_by: tuple[str, ...] = ()  # what holds its clock down, in words
    lost: bool = False


@dataclass(frozen=True)
class OperationRow:
    """What one operation did since the start; percentiles None where nothing was timed."""

    layer: str
    op: str
    count: int
    p50_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    wall_share: float | None  # of the threads' wall time
    errors: int = 0
    bytes: int | None = None
    exact: bool = True
    flags: tuple[str, ...] = ()
    source: SourceLine | None = None  # the line most of its time comes from, if one has much of it
    source_share: float | None = None


@dataclass(frozen=True)
class HostRow:
    """Time the feeding threads spent in one bucket, and the long waits in it."""

    bucket: str
    ns: int
    share: float
    waits: int = 0  # recorded ones: a millisecond or longer
    p50_ns: int | None = None
    p95_ns: int | None = None
    p99_ns: int | None = None
    max_ns: int | None = None
    who: tuple[str, ...] = ()  # culprits or wakers, worst first


@dataclass(frozen=True)
class ThreadRow:
    """Where one thread's time went."""

    tid: int
    comm: str
    feeder: bool
    wall_ns: int
    time_ns: Mapping[str, int]


@dataclass(frozen=True)
class ProcessRow:
    """Where the time of a process's feeding threads went; time_ns sums to threads_ns."""

    pid: int
    comm: str
    wall_ns: int
    threads_ns: int
    time_ns: Mapping[str, int]
    threads: tuple[ThreadRow, ...] = ()
    operations: tuple[OperationRow, ...] = ()
    culprits: tuple[tuple[str, int], ...] = ()  # (name and pid, ns of core taken)


@dataclass(frozen=True)
class Second:
    """One second of a job or of a thread; None where nobody knows."""

    at_ns: int  # when it began
    length_ns: int
    time_ns: Mapping[str, int]
    steps_per_s: float | None = None
    gpu_busy_share: float | None = None


@dataclass(frozen=True)
class History:
    """The last minutes of a job, or of a thread that feeds it; oldest second first."""

    pid: int
    tid: int | None  # None: all feeding threads of the process
    seconds: tuple[Second, ...] = ()


@dataclass(frozen=True)
class LiveCall:
    """A call entered and not returned from for a second or longer."""

    pid: int
    tid: int
    comm: str
    op: str
    duration_ns: int
    bucket: str = ""


@dataclass(frozen=True)
class Overhead:
    """What tracing costs the traced threads; None until it is known."""

    share: float | None = None
    budget_share: float | None = None  # None: no limit
    hits_per_s: float | None = None
    ns_per_hit: float | None = None
    agent_cpu_share: float | None = None  # of a core, what the agent itself computes
    taken_from_job_share: float | None = None  # of feeding threads' time: waited for a core that we had
    bystanders_share: float | None = None  # of all cores: what switches of everybody else cost more
    actions: tuple[str, ...] = ()


@dataclass(frozen=True)
class DatabaseStatus:
    """The recording; path is None with --no-record, problem is empty while it works."""

    path: str | None = None
    size_bytes: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class LiveView:
    """Everything the live view shows at one moment."""

    now_ns: int
    elapsed_ns: int
    node: str = ""
    targets: tuple[LiveTarget, ...] = ()
    libraries: tuple[ProbedLibrary, ...] = ()
    probes: tuple[ProbeSource, ...] = ()
    system: SystemLine | None = None
    cards: tuple[CardLine, ...] = ()
    operations: tuple[OperationRow, ...] = ()
    host: tuple[HostRow, ...] = ()
    processes: tuple[ProcessRow, ...] = ()
    in_flight: tuple[LiveCall, ...] = ()
    events: int = 0
    events_per_s: float = 0.0
    losses: Mapping[str, int] = field(default_factory=dict)
    lost_share: float = 0.0
    overhead: Overhead = Overhead()
    database: DatabaseStatus = DatabaseStatus()
    findings: tuple[Finding, ...] = ()  # worst first
    past: tuple[Finding, ...] = ()  # findings about time that lies before what the diagnosis looks at
    looked_ns: int | None = None  # until when the diagnosis has looked
    bound: tuple[Bound, ...] = ()  # what limits each job
    history: tuple[History, ...] = ()  # only where the screen shows it
    lately: LiveView | None = None  # the same over the last seconds; only where the screen shows it
    warnings: tuple[str, ...] = ()

    def layer(self, name: str) -> tuple[OperationRow, ...]:
        return tuple(row for row in self.operations if row.layer == name)

    def seconds(self, pid: int, tid: int | None = None) -> tuple[Second, ...]:
        return next((each.seconds for each in self.history if (each.pid, each.tid) == (pid, tid)), ())

    def is_over(self, finding: Finding) -> bool:
        """It is about time, and was not seen any more for a while; a state does not end."""
        if finding.kind in STATES or self.looked_ns is None:
            return False
        return self.looked_ns - finding.last_ns > OVER_NS


UNREAD = "output_backlog"  # a loss: the recording has these records, the reader of `--json` has not


class Surface(Protocol):
    """Where a trace is shown. Calls come from one thread, in order; none of them blocks for long.

    Whoever runs the trace watches `stop_requested` (set by a signal, by q in the
    live view, by a reader that went away) and installs no signal handlers itself.
    """

    stop_requested: threading.Event
    wants_records: bool
    takes_the_screen: bool  # other messages have to wait
    metric_limits: SeriesLimits | None  # None: no metrics are wanted
    metric_prices: Prices

    def run(self, work: Callable[[], int]) -> int:
        """Run `work`, which calls the methods below, and return its exit code."""
        ...

    def starting(self, doing: str) -> None:
        """What is being done before `begin`; empty: nothing any more."""
        ...

    def metrics(self, read: Callable[[], Snapshot]) -> None:
        """Where metrics are read, in any thread and at any time; called once, before `begin`."""
        ...

    def begin(self, view: LiveView) -> None: ...

    def update(self, view: LiveView) -> None: ...

    def behind(self) -> bool:
        """Whoever reads the records does not keep up: none are wanted now, and they are counted instead."""
        ...

    def records(self, lines: Iterable[Mapping[str, Any]]) -> None: ...

    def end(self, view: LiveView, exit_code: int) -> None: ...


class QuietSurface:
    """Shows nothing."""

    wants_records = False
    takes_the_screen = False
    metric_limits: SeriesLimits | None = None
    metric_prices = UNPRICED

    def __init__(self) -> None:
        self.stop_requested = threading.Event()

    def run(self, work: Callable[[], int]) -> int:
        return work()

    def starting(self, doing: str) -> None: ...

    def metrics(self, read: Callable[[], Snapshot]) -> None: ...

    def begin(self, view: LiveView) -> None: ...

    def update(self, view: LiveView) -> None: ...

    def behind(self) -> bool:
        return False

    def records(self, lines: Iterable[Mapping[str, Any]]) -> None: ...

    def end(self, view: LiveView, exit_code: int) -> None: ...
