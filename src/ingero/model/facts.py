"""What a recording says about a stretch of time, as the diagnosis reads it.

Sums per slice of two seconds, not single events: an hour of a busy job is some
ten thousand rows. Slices are counted from the start of the recording, so that the
live diagnosis and a later one look at the same ones. Instants are Unix-epoch ns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingero.model.gpu_facts import GpuFacts
from ingero.model.sites import Sites
from ingero.model.span_sums import SUMMED, Span, SpanRows, SpanSums
from ingero.model.window import BUCKETS, Records

SLICE_NS = 2_000_000_000
GPU_LAG_NS = 1_000_000_000  # a card's busy share is of the second before it was asked (seen on an H200)


def slice_start(at_ns: int, origin_ns: int) -> int:
    """Start of the slice an instant lies in."""
    return origin_ns + (at_ns - origin_ns) // SLICE_NS * SLICE_NS


THREADS = np.dtype(
    [
        ("slice", "<i8"),
        ("pid", "<i8"),
        ("tid", "<i8"),
        ("comm", "<i8"),  # index into Facts.strings
        ("feeder", "<i8"),
        ("throttled_ns", "<i8"),
        ("late_ns", "<i8"),
        ("system_ns", "<i8"),
        ("known", "<i8"),
        ("gil_ns", "<i8"),
        ("voluntary_switches", "<i8"),
        ("involuntary_switches", "<i8"),
        ("major_faults", "<i8"),
        ("ns", "<i8", (BUCKETS,)),
        ("gap", "<i8", (BUCKETS,)),
    ]
)
OPERATIONS = np.dtype(
    [
        ("slice", "<i8"),
        ("pid", "<i8"),
        ("op", "<i8"),  # key of Facts.ops
        ("caller", "<i8"),
        ("count", "<i8"),
        ("sum_ns", "<i8"),
        ("max_ns", "<i8"),
        ("bytes", "<i8"),
        ("errors", "<i8"),
        ("recorded", "<i8"),
        ("estimated", "<i8"),  # seconds of the slice in which count is an estimate
        ("error", "<i8"),  # how far count may be off
        ("split", "<i8", (BUCKETS,)),
    ]
)
CULPRITS = np.dtype(
    [
        ("slice", "<i8"),
        ("victim_pid", "<i8"),
        ("victim_tid", "<i8"),
        ("pid", "<i8"),  # 0: nobody, a CPU quota
        ("comm", "<i8"),
        ("throttled", "<i8"),
        ("ns", "<i8"),
        ("count", "<i8"),
    ]
)
WAKERS = np.dtype(
    [
        ("slice", "<i8"),
        ("pid", "<i8"),
        ("tid", "<i8"),
        ("waker_pid", "<i8"),  # 0: an interrupt, or not known
        ("waker_tid", "<i8"),
        ("kind", "<i8"),  # layout.WakerKind
        ("comm", "<i8"),
        ("bucket", "<i8"),
        ("ns", "<i8"),
        ("count", "<i8"),
    ]
)


# Calls of one process, second by second.
SECONDS = np.dtype([("start_ns", "<i8"), ("op", "<i8"), ("count", "<i8"), ("exact", "<i8")])


@dataclass(frozen=True, slots=True)
class OpFact:
    layer: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class ProcessFact:
    pid: int
    comm: str
    cmdline: str | None = None
    parent_pid: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    exit_code: int | None = None
    cgroup_id: int | None = None
    container: str | None = None  # namespace/pod, container id or job: whose it is, among people
    rank: int | None = None
    uid: int | None = None
    listens: bool | None = None  # owns a listening socket: others ask it
    cpus: tuple[int, ...] = ()  # cores it may use; empty: not known
    world_size: int | None = None
    pod: str | None = None
    namespace: str | None = None
    runtime: str | None = None

    @property
    def serves(self) -> bool:
        """Waits to be asked. A rank of a job listens for its peers, whom it needs to go on."""
        return bool(self.listens) and self.rank is None


@dataclass(frozen=True, slots=True)
class ErrorFact:
    """Calls of one operation that failed in one way."""

    pid: int
    tid: int
    op: str
    code: int
    count: int
    first_ns: int
    last_ns: int
    event_id: str


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that happened once: a process killed for memory, a fault of the GPU, a retransmit."""

    at_ns: int
    pid: int | None
    comm: str | None
    event_id: str
    code: int | None = None
    text: str = ""
    peer_pid: int | None = None


@dataclass(frozen=True, slots=True)
class PodIncident:
    """A pod's container that ended and was started again, or a pod that was evicted."""

    at_ns: int
    pod: str
    namespace: str
    container: str  # empty: the pod as a whole
    event: str  # restart, oom-kill, evicted
    reason: str | None = None
    exit_code: int | None = None
    restarts: int | None = None


@dataclass(frozen=True, slots=True)
class InFlight:
    """A call that has not returned, or a wait that has not ended, when last seen."""

    pid: int
    tid: int
    op: str | None
    since_ns: int
    last_seen_ns: int
    bucket: str
    entered: bool = True  # False: it began before we came, and lasts longer than from since_ns
    died: bool = False  # the thread ended in it
    with_nccl: bool | None = None  # whether its process has NCCL loaded; None: not known

    @property
    def lasted_ns(self) -> int:
        return self.last_seen_ns - self.since_ns


class Arrival(NamedTuple):
    """One rank's part in one collective; an hour has a hundred thousand."""

    comm_hash: int
    seq: int
    op: str
    rank: int
    nranks: int
    pid: int
    at_ns: int
    bytes: int | None
    done_ns: int = 0  # when its next wait for the GPU was over; 0: not known


@dataclass(frozen=True, slots=True)
class SystemFact:
    at_ns: int
    cpu_share: float | None
    memory_share: float | None
    memory_available_bytes: int | None
    load1: float | None
    swap_bytes: int | None
    psi_cpu: float | None
    psi_memory: float | None
    psi_io: float | None


@dataclass(frozen=True, slots=True)
class LossFact:
    reason: str
    count: int
    from_ns: int
    to_ns: int


Marks = NDArray[np.int64]  # (n, 2): start and duration of calls, oldest first


def no_marks(_pid: int, _op: int) -> Marks:
    return np.zeros((0, 2), np.int64)


def no_waits(_tid: int, _bucket: str, _from_ns: int, _to_ns: int) -> list[str]:
    return []


def no_stalls(_tid: int, _least_ns: int) -> Marks:
    return np.zeros((0, 2), np.int64)


def nothing_said(_pid: int) -> Marks:
    return np.zeros((0, 2), np.int64)


def no_seconds(_pid: int) -> Records:
    return np.zeros(0, SECONDS)


def no_windows(_pid: int, _tid: int) -> dict[int, int]:
    return {}


def no_frees(_pid: int) -> dict[int, int]:
    return {}


def nobody_asked(_gpu_ids: Collection[int], _spans: Sequence[tuple[int, int]]) -> float | None:
    return None


def _none(dtype: np.dtype[np.void]) -> Records:
    return np.zeros(0, dtype)


def _numbered(parts: Sequence[Records]) -> Records:
    for number, part in enumerate(parts):
        part["slice"] = number
    return np.concatenate(parts)


@dataclass(slots=True)
class Facts:
    """Everything the detectors may look at."""

    node: str
    origin_ns: int  # start of slice 0
    from_ns: int
    to_ns: int
    cores: int | None = None
    complete_from_ns: int | None = None  # detail from before this is gone; None: it is all there
    agent_pid: int | None = None  # ours: never evidence
    slice_ns: int = SLICE_NS
    strings: dict[int, str] = field(default_factory=dict)
    ops: dict[int, OpFact] = field(default_factory=dict)
    threads: Records = field(default_factory=lambda: _none(THREADS))
    operations: Records = field(default_factory=lambda: _none(OPERATIONS))
    culprits: Records = field(default_factory=lambda: _none(CULPRITS))
    wakers: Records = field(default_factory=lambda: _none(WAKERS))
    processes: dict[int, ProcessFact] = field(default_factory=dict)
    errors: list[ErrorFact] = field(default_factory=list)
    ooms: list[Incident] = field(default_factory=list)
    pods: list[PodIncident] = field(default_factory=list)
    xids: list[Incident] = field(default_factory=list)
    retransmits: list[Incident] = field(default_factory=list)
    in_flight: list[InFlight] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    unmatched: list[Arrival] = field(default_factory=list)  # of communicators made before the trace
    standing: list[Arrival] = field(default_factory=list)  # the last of each rank; seq -1: none yet
    nameless: dict[int, int] = field(default_factory=dict)  # pid: when it last enqueued one of those
    gpus: dict[int, set[int]] = field(default_factory=dict)  # pid: cards it used, as far as known
    cards: GpuFacts = field(default_factory=GpuFacts)
    system: list[SystemFact] = field(default_factory=list)
    losses: list[LossFact] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)  # sources not recorded, and why
    limits: dict[str, str] = field(default_factory=dict)  # sources recorded in part, and how
    partial: bool = False  # only a selection of events was stored: sums cover a part of the time
    blind: list[tuple[int, str, str]] = field(default_factory=list)  # process, source, why it has none
    longest: Callable[[int, str, int, int], list[str]] = no_waits  # ids of a thread's longest waits
    marks: Callable[[int, int], Marks] = no_marks  # calls of a process and operation, one by one
    # A thread's waits that are so long, one by one; not those for the GPU or for a core
    stalls: Callable[[int, int], Marks] = no_stalls
    sites: Sites = field(default_factory=Sites)  # where calls, waits and samples come from
    seconds: Callable[[int], Records] = no_seconds  # SECONDS of a process
    said: Callable[[int], Marks] = nothing_said  # when a process said which step, by its labels
    windows: Callable[[int, int], dict[int, int]] = no_windows  # of a thread: how long, by start
    freed_nothing: Callable[[int], dict[int, int]] = no_frees  # of a process: frees of NULL, by slice
    # The busy share of the busiest of some cards over stretches of time; None: not known
    busy: Callable[[Collection[int], Sequence[tuple[int, int]]], float | None] = nobody_asked
    spans: Callable[[Sequence[Span]], SpanRows] | None = None  # sums over any stretches of time
    _sums: SpanSums | None = None

    def over(self, stretches: Sequence[Sequence[Span]]) -> Facts:
        """The same, with the sums of each stretch as one slice."""
        if self._sums is None:
            tables = {name: getattr(self, name) for name in SUMMED}
            self._sums = SpanSums(tables, self.origin_ns, self.slice_ns, self.spans)
        parts = [self._sums.over(spans) for spans in stretches]
        rows = {name: _numbered([part[name] for part in parts]) for name in SUMMED}
        return replace(
            self,
            threads=rows["threads"],
            operations=rows["operations"],
            culprits=rows["culprits"],
            wakers=rows["wakers"],
            _sums=None,
        )

    def at_ns(self, number: int) -> int:
        """When a slice began."""
        return self.origin_ns + number * self.slice_ns

    def container_of(self, pid: int) -> str | None:
        """Whose process it is, among people: namespace/pod, container id or job."""
        known = self.processes.get(pid)
        return known.container if known else None

    def comm(self, pid: int) -> str:
        known = self.processes.get(pid)
        return known.comm if known else f"pid {pid}"
