"""Every metric there is: one row each. What is scraped, what is sent, the page, the panels and the
alerts are all made from these rows.

A row has the OpenTelemetry name and unit; its Prometheus name follows from them by the rules
OpenTelemetry has for that, so a query works on either way of collecting. Values are computed in
serve/answers/metrics.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ingero.model.finding import Finding
from ingero.model.histogram import Counts
from ingero.model.words import BUCKETS

PREFIX = "ingero."
OTHER = "other"
UNITS = {
    "s": "seconds", "By": "bytes", "1": "ratio", "Hz": "hertz", "W": "watts", "Cel": "celsius", "": "",
}  # fmt: skip


class Kind(StrEnum):
    """How values of a metric behave."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


# A label, the OpenTelemetry attribute it is, and what it says.
LABELS: dict[str, tuple[str, str]] = {
    "pid": ("process.pid", "Process id, as on the host; empty for `other`."),
    "process": (
        "process.executable.name",
        "Name of the process; `other` is all without series of their own.",
    ),
    "container": ("container.id", "Container id; empty outside containers."),
    "pod": ("k8s.pod.name", "Pod; empty where there is none or it is not known."),
    "namespace": ("k8s.namespace.name", "Namespace of the pod."),
    "rank": ("ingero.rank", "Rank in the job, where the process has one."),
    "world_size": ("ingero.world_size", "Ranks in the job."),
    "runtime": ("container.runtime.name", "Container runtime."),
    "job": ("ingero.job", "Job of the batch system."),
    "layer": ("ingero.layer", "`runtime`, `driver`, `graph`, `nccl` or `python`."),
    "op": ("ingero.operation", "Function called; `other` is all without series of their own."),
    "direction": ("ingero.direction", "`HtoD`, `DtoH`, `DtoD`, `HtoH`; `unknown` where nothing tells."),
    "bucket": ("ingero.bucket", "Where time went; docs/glossary.md."),
    "kind": ("ingero.finding.kind", "Kind of finding; docs/detectors."),
    "currency": ("ingero.currency", "As configured (`cost.currency`)."),
    "severity": ("ingero.finding.severity", "`CRITICAL`, `HIGH`, `MEDIUM` or `LOW`."),
    "gpu": ("hw.id", "Number of the GPU, as the driver counts."),
    "uuid": ("hw.serial_number", "UUID of the GPU."),
    "model": ("hw.model", "Model of the GPU."),
    "clock": ("ingero.gpu.clock", "`sm` or `memory`."),
    "reason": ("ingero.reason", "Why, in one word."),
    "type": ("error.type", "Kind of error."),
    "source": ("ingero.source", "Source of events; docs/kernel-support.md."),
    "signal": ("ingero.otlp.signal", "`metrics`, `traces` or `logs`."),
    "outcome": ("ingero.otlp.outcome", "`accepted`, `refused` or `failed`; what failed is tried again."),
    "version": ("service.version", "Version of ingero."),
    "node": ("host.name", "Name of the machine in the records."),
}
PROCESS = ("pid", "process", "container", "pod", "namespace")
GPU = ("gpu", "uuid", "model")


@dataclass(frozen=True)
class Metric:
    """One row."""

    name: str  # OpenTelemetry: dots, no unit
    kind: Kind
    unit: str  # UCUM; in braces what is counted
    labels: tuple[str, ...]
    help: str
    source: str  # where its value comes from
    live_only: str = ""  # why a recording does not hold it; empty: `export --format otlp` has it too

    @property
    def prometheus(self) -> str:
        """Without _total, as prometheus_client wants it; `series` has it."""
        suffix = "" if self.unit.startswith("{") else UNITS[self.unit]
        if self.unit == "1" and self.kind is not Kind.GAUGE:
            suffix = ""
        base = self.name.replace(".", "_")
        return f"{base}_{suffix}" if suffix else base

    @property
    def series(self) -> str:
        """The name to write in a query; of a histogram, what its parts begin with."""
        return f"{self.prometheus}_total" if self.kind is Kind.COUNTER else self.prometheus

    @property
    def of_process(self) -> bool:
        return self.labels[: len(PROCESS)] == PROCESS


def _row(
    name: str,
    kind: Kind,
    unit: str,
    help: str,
    source: str,
    labels: tuple[str, ...] = (),
    live_only: str = "",
) -> Metric:
    return Metric(PREFIX + name, kind, unit, labels, help, source, live_only)


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_OP = (*PROCESS, "layer", "op")
_TIME = (
    "Where the time of threads that feed a GPU went: "
    f"{', '.join(f'{name} is {each.words}' for name, each in BUCKETS.items())}."
)
_FILE = "the file may since have been merged, trimmed or copied"
_LOST = "NVML, live diagnosis"
_SENDING = "sending is the running agent's, and not recorded"

ALL: tuple[Metric, ...] = (
    # What a process did.
    _row("operation.duration", _H, "s", "How long calls took.", "counters in the kernel", _OP),
    _row("operation.calls", _C, "{call}", "Calls made.", "counters in the kernel", _OP),
    _row("operation.errors", _C, "{call}", "Calls that returned an error.", "counters in the kernel", _OP),
    _row("gpu.memcpy", _C, "By", "Bytes copied.", "counters; direction by name, or by recorded calls",
         (*PROCESS, "direction")),
    _row("gpu.allocated", _C, "By", "GPU memory asked for.", "counters in the kernel", PROCESS),
    _row("collective.calls", _C, "{call}", "Collectives enqueued, sends and receives too.",
         "counters in the kernel", (*PROCESS, "op")),
    _row("collective.size", _C, "By", "Bytes given to collectives.", "counters in the kernel",
         (*PROCESS, "op")),
    _row("thread.time", _C, "s", _TIME, "scheduler and calls",
         (*PROCESS, "bucket")),
    _row("gpu.idle.time", _C, "s", "Time of feeding threads in which the GPU had nothing to do.",
         "scheduler and calls", PROCESS),
    _row("gpu.held.time", _C, "s", "Time a process was on a GPU; of a shared one its part, by use.", "NVML",
         PROCESS),
    _row("gpu.busy.time", _C, "s", "Of the time held, how long the GPU was busy.", "NVML", PROCESS),
    _row("gpu.lost.time", _C, "s", "Of the time held, how long the GPU was idle because of a finding.", _LOST,
         (*PROCESS, "kind")),
    _row("gpu.idle_without_finding.time", _C, "s",
         "Of the time held, how long the GPU was idle and no finding says why.", _LOST, PROCESS),
    _row("gpu.cost", _C, "{money}", "Price of the time held, where the GPU has a price.", "NVML, prices",
         (*PROCESS, "currency")),
    _row("gpu.cost.lost", _C, "{money}", "Price of the time lost: what fixing the finding saves.",
         f"{_LOST}, prices", (*PROCESS, "kind", "currency")),
    _row("call.in_flight", _G, "s", "Longest call entered and not returned from, from a second on.",
         "threads now", (*PROCESS, "op")),
    _row("process.info", _G, "{process}", "1 for each process with series of its own.", "process table",
         (*PROCESS, "rank", "world_size", "runtime", "job")),
    # What is wrong.
    _row("findings", _G, "{finding}", "Findings now; 0 where there is none of a kind.", "live diagnosis",
         ("kind", "severity")),
    _row("findings.found", _C, "{finding}", "Findings since the start, each counted once.", "live diagnosis",
         ("kind", "severity")),
    _row("finding.lost_time", _G, "1", "Part of its time a process loses to a finding.", "live diagnosis",
         (*PROCESS, "kind", "severity")),
    # GPUs.
    _row("gpu.utilization", _G, "1", "Part of the time something ran on the GPU.", "NVML", GPU),
    _row("gpu.memory.used", _G, "By", "Memory in use.", "NVML", GPU),
    _row("gpu.memory.total", _G, "By", "Memory there is.", "NVML", GPU),
    _row("gpu.clock", _G, "Hz", "Clock now.", "NVML", (*GPU, "clock")),
    _row("gpu.power", _G, "W", "Power drawn.", "NVML", GPU),
    _row("gpu.power.limit", _G, "W", "Power it may draw.", "NVML", GPU),
    _row("gpu.temperature", _G, "Cel", "Temperature.", "NVML", GPU),
    _row("gpu.throttled.time", _C, "s", "Time the GPU ran slower than it could.", "NVML",
         (*GPU, "reason")),
    _row("gpu.throttle.events", _C, "{event}", "Times throttling began.", "NVML", (*GPU, "reason")),
    _row("gpu.ecc.errors", _C, "{error}", "Memory errors.", "NVML", (*GPU, "type")),
    _row("gpu.xid.errors", _C, "{error}", "Errors the driver reported.", "kernel", ("type",)),
    _row("gpu.process.memory", _G, "By", "GPU memory a process holds.", "NVML", (*PROCESS, "gpu")),
    # The machine.
    _row("system.cpu", _G, "1", "Part of the cores in use.", "/proc"),
    _row("system.memory", _G, "1", "Part of the memory in use.", "/proc"),
    _row("system.memory.available", _G, "By", "Memory that programs can still get.", "/proc"),
    _row("system.load1", _G, "{thread}", "Load average of a minute.", "/proc"),
    _row("system.swap", _G, "By", "Swap in use.", "/proc"),
    # The agent itself.
    _row("build.info", _G, "{agent}", "1, with what runs here.", "agent", ("version", "node")),
    _row("targets", _G, "{process}", "Processes being traced.", "agent"),
    _row("probes", _G, "{probe}", "Probes attached.", "agent", ("source",),
         "probes come and go with their budget, and their number is not recorded"),
    _row("events", _C, "{event}", "Calls counted and kernel events recorded.", "agent"),
    _row("lost.events", _C, "{event}", "Records dropped; docs/accounting.md has the reasons.", "agent",
         ("reason",)),
    _row("overhead", _G, "1", "Part of the traced threads' time that tracing costs.",
         "hits times the measured cost of one"),
    _row("overhead.budget", _G, "1", "Most that tracing may cost.", "--max-overhead"),
    _row("overhead.taken_from_jobs", _G, "1",
         "Part of the traced threads' time in which they waited for a core that the agent had.", "scheduler"),
    _row("overhead.bystanders", _G, "1",
         "Part of all cores' time that context switches of everybody else cost more.",
         "switches of the machine times what one was measured to cost at the start"),
    _row("probe.hits", _C, "{hit}", "Times a probe was hit.", "agent"),
    _row("agent.cpu.time", _C, "s", "CPU time of the agent.", "agent"),
    _row("agent.last_window.timestamp", _G, "s", "When the agent last read the kernel, Unix time.", "agent"),
    _row("database.size", _G, "By", "Size of the recording.", "store", live_only=_FILE),
    _row("database.working", _G, "{database}", "1 while the recording is written, 0 when it is not.",
         "store", live_only=_FILE),
    _row("otlp.exports", _C, "{request}", "Requests sent to the OTLP receiver.", "agent",
         ("signal", "outcome"), _SENDING),
    _row("otlp.lost", _C, "{item}", "Requests given up: the receiver was away too long, or refused them.",
         "agent", ("signal",), _SENDING),
    _row("otlp.waiting", _G, "{request}", "Requests not yet taken by the receiver.", "agent", ("signal",),
         _SENDING),
)  # fmt: skip
BY_NAME: dict[str, Metric] = {metric.name.removeprefix(PREFIX): metric for metric in ALL}


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram: slots as in model/histogram.py."""

    slots: Counts
    sum_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """One series now. Labels stand in the order of the row; instants are Unix-epoch nanoseconds."""

    labels: tuple[str, ...]
    value: float | Distribution
    start_ns: int  # since when it is counted
    end_ns: int | None = None  # of a series that ended; None: the snapshot's moment


@dataclass(frozen=True)
class SeriesLimits:
    """How many series there may be, and how long a series of the past stays."""

    processes: int = 32
    operations: int = 24  # of one process
    keep_ns: int = 300_000_000_000


USUAL = SeriesLimits()


@dataclass(frozen=True)
class Snapshot:
    """All series at one moment, by row."""

    at_ns: int
    start_ns: int
    node: str
    points: Mapping[str, list[SeriesPoint]] = field(default_factory=dict)  # by the name without prefix
    findings: tuple[Finding, ...] = ()

    def also(self, more: Mapping[str, list[SeriesPoint]]) -> Snapshot:
        return replace(self, points={**self.points, **more})
