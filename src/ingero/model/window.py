"""One second of what happened, as it travels from capture to store and to the screen.

Arrays of records, never an object per event. Instants are CLOCK_MONOTONIC
nanoseconds; only ingero.clock knows wall time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

from ingero.model import layout
from ingero.model.gpus import GpuNews
from ingero.model.layout import Bucket
from ingero.model.numbers import Count, Half, Signed
from ingero.model.operations import KernelName, LearntKernel
from ingero.model.stack import ResolvedStack

BUCKETS = int(Bucket.BUCKETS)
BUCKET_NAMES: tuple[str, ...] = tuple(b.name.lower() for b in Bucket if b is not Bucket.BUCKETS)

Records = NDArray[np.void]
Labels = tuple[tuple[str, str], ...]  # key and value, sorted
StackHashes = NDArray[np.int64]  # 0: no stack

# What one process did with one operation within the window.
OPERATION = np.dtype(
    [
        ("pid", "<u4"),
        ("op", "<u2"),
        ("caller", "<u2"),  # 0 unknown, 1 runtime, 2 direct
        ("count", "<u8"),
        ("sum_ns", "<u8"),
        ("min_ns", "<u8"),  # 0 with max_ns 0: not known
        ("max_ns", "<u8"),
        ("bytes", "<u8"),
        ("errors", "<u8"),
        ("recorded", "<u8"),
        ("dropped", "<u8"),
        ("untimed", "<u8"),  # counted and not timed, not in count: only until they are made one
        ("estimated", "?"),  # count is an estimate
        ("count_error", "<u8"),  # and may be off by this
        ("split", "<u8", (BUCKETS,)),
        ("slots", layout.OP_STATS["slots"]),
    ]
)


class InFlightFlag(IntFlag):
    """What is known of a call in flight, or of a wait: `before_attach` of its row."""

    WAIT_BEFORE = 1  # the interval it is in began before we came
    CALL_BEFORE = 2  # its entry was not seen: it lasts longer than is told
    WITH_NCCL = 4  # and NCCL is loaded in its process
    DIED = 8  # the thread ended in it


# Calls that no record stands for yet when their process or the trace ends.
UNSAMPLED = np.dtype([("pid", "<u4"), ("op", "<u2"), ("caller", "<u2"), ("calls", "<u8")])

# Where one thread's time went within the window.
THREAD_TIME = np.dtype(
    [
        ("window_ns", "<u8"),  # start of the window it belongs to; a poll is told when it ends
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("comm", "S16"),
        ("feeder", "?"),
        ("ns", "<u8", (BUCKETS,)),
        ("gap", "<u8", (BUCKETS,)),  # of ns: the GPU had nothing to do that this thread gave it
        ("throttled_ns", "<u8"),
        ("system_ns", "<u8"),  # of the time on a core: inside the kernel
        ("spun_ns", "<u8"),  # of gpu_wait: on a core, looking whether the GPU is done
        ("reclaiming_ns", "<u8"),  # of memory_wait: on a core
        ("known", "<u8"),  # how often it was seen whether the GPU had something to do
        ("late_ns", "<u8"),  # of runqueue: in a synchronising call, after the GPU had finished
        ("voluntary_switches", "<u8"),
        ("involuntary_switches", "<u8"),
        ("major_faults", "<u8"),
        ("minor_faults", "<u8"),
        ("gil_ns", "<i8"),  # of lock_wait: for the Python interpreter's lock; -1: not known
        ("estimated_ns", "<u8"),  # of ns: in cuda_cpu or host_cpu by estimate
    ]
)

# Who took a core from a victim (bucket runqueue), within the window.
CULPRIT = np.dtype(
    [
        ("victim_pid", "<u4"),
        ("victim_tid", "<u4"),
        ("pid", "<u4"),
        ("bucket", "<u2"),
        ("throttled", "<u2"),  # 1: a CPU quota, nobody's fault; pid is 0 then
        ("comm", "S16"),
        ("ns", "<u8"),
        ("count", "<u8"),
    ]
)

# Who ended a thread's waits, within the window.
WAKER = np.dtype(
    [
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("waker_pid", "<u4"),
        ("waker_tid", "<u4"),
        ("kind", "<u2"),  # layout.WakerKind
        ("bucket", "<u2"),
        ("comm", "S16"),
        ("ns", "<u8"),
        ("count", "<u8"),
    ]
)


# Block requests of one process that is no target, on one disk, within the window.
IO = np.dtype(
    [
        ("pid", "<u4"),
        ("write", "<u4"),  # as in layout.BLOCK
        ("dev", "<u4"),
        ("comm", "S16"),
        ("count", "<u8"),
        ("bytes", "<u8"),
        ("ns", "<u8"),
        ("max_ns", "<i8"),  # -1: not known, longer ones came before
    ]
)


# How often a thread was seen on a core in one place and state, within the window.
SAMPLE = np.dtype(
    [
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("stack_hash", "<i8"),  # 0: not walked
        ("bucket", "<u2"),
        ("op", "<u2"),  # the traced call it was in, 0 if none
        ("flags", "<u4"),  # layout.SampleFlag
        ("count", "<u8"),
    ]
)


@dataclass(frozen=True, slots=True)
class Process:
    """A process as users know it. (node, pid, start_ns) is its identity: PIDs are reused."""

    pid: Half
    start_ns: Count  # CLOCK_BOOTTIME nanoseconds, as /proc/PID/stat and the kernel have it
    comm: str
    cmdline: str
    cgroup_id: Count
    uid: Half | None
    parent_pid: Half | None = None
    rank: Half | None = None
    local_rank: Half | None = None
    world_size: Half | None = None
    end_ns: Count | None = None  # monotonic; None while it runs
    exit_code: Signed | None = None
    listens: bool | None = None  # holds a listening socket: a server; None: not known
    cpus: str = ""  # cores it may use, as the kernel lists them (0-3,8); empty: not known
    target: bool = True  # False: a bystander, known only as a culprit or waker
    labels: Labels = ()  # whose it is: job, user, slurm.account


@dataclass(frozen=True, slots=True)
class Annotation:
    """What a job says of one of its processes, from an instant on; an empty value: no longer."""

    pid: int
    at_ns: int
    key: str
    value: str


CALL_TIMES = "call times"  # calls are counted and not timed
FIRST_CALLS = "first calls"  # made before the probes of their library were on


@dataclass(frozen=True, slots=True)
class Unwatchable:
    """Something of a process that cannot be seen, and why."""

    pid: int
    what: str  # gil, FIRST_CALLS, CALL_TIMES
    why: str


@dataclass(frozen=True, slots=True)
class GovernorAction:
    """Something is watched less than before, or more again."""

    at_ns: int
    what: str  # records and stacks, timing of calls, launches
    before: str
    after: str
    why: str
    watched_share: float  # of the time, what is named is watched from then on


@dataclass(frozen=True, slots=True)
class Container:
    """What a cgroup id stands for."""

    cgroup_id: Count
    cgroup_path: str
    container_id: str | None = None
    runtime: str | None = None
    pod: str | None = None
    namespace: str | None = None
    job: str | None = None
    labels: Labels = ()  # name, owner, pod.uid, and label:KEY for each of its own
    pod_uid: str | None = None  # as it is in the cgroup path


@dataclass(frozen=True, slots=True)
class PodEvent:
    """What became of a pod's container, as the kubelet tells it; instants are Unix-epoch nanoseconds."""

    at_ns: int
    pod: str
    namespace: str
    uid: str
    container: str  # empty: the pod as a whole
    event: str  # seen, restart, oom-kill, evicted
    reason: str | None = None
    exit_code: int | None = None
    restarts: int | None = None


@dataclass(frozen=True, slots=True)
class SystemSample:
    """The machine at one moment; None where the kernel does not tell."""

    cpu_share: float | None
    memory_share: float | None
    memory_available_bytes: int | None
    load1: float | None
    cores: int
    swap_bytes: int | None
    psi_cpu_some: float | None = None
    psi_memory_some: float | None = None
    psi_io_some: float | None = None


def empty(dtype: np.dtype[np.void]) -> Records:
    return np.zeros(0, dtype)


def no_hashes() -> StackHashes:
    return np.zeros(0, np.int64)


def aligned(hashes: StackHashes, count: int) -> StackHashes:
    """One hash for each of `count` records; 0 for all where none were given."""
    return hashes if len(hashes) == count else np.zeros(count, np.int64)


@dataclass(slots=True)
class Window:
    """Everything learnt between start_ns and end_ns (monotonic)."""

    start_ns: int
    end_ns: int
    calls: Records = field(default_factory=lambda: empty(layout.CALL))
    kernels: dict[int, KernelName] = field(default_factory=dict)  # behind the numbers in `calls`
    kernels_learnt: list[LearntKernel] = field(default_factory=list)
    waits: Records = field(default_factory=lambda: empty(layout.WAIT))
    blocks: Records = field(default_factory=lambda: empty(layout.BLOCK))
    tcp: Records = field(default_factory=lambda: empty(layout.TCP))
    ooms: Records = field(default_factory=lambda: empty(layout.OOM))
    execs: Records = field(default_factory=lambda: empty(layout.PROCESS))
    xids: Records = field(default_factory=lambda: empty(layout.XID))
    operations: Records = field(default_factory=lambda: empty(OPERATION))
    unsampled: Records = field(default_factory=lambda: empty(UNSAMPLED))
    threads: Records = field(default_factory=lambda: empty(THREAD_TIME))
    culprits: Records = field(default_factory=lambda: empty(CULPRIT))
    wakers: Records = field(default_factory=lambda: empty(WAKER))
    io: Records = field(default_factory=lambda: empty(IO))
    in_flight: Records = field(default_factory=lambda: empty(layout.THREAD_TOTALS))
    samples: Records = field(default_factory=lambda: empty(SAMPLE))
    stacks: list[ResolvedStack] = field(default_factory=list)  # not told before, or told again
    call_stacks: StackHashes = field(default_factory=no_hashes)  # of each of `calls`; empty: of none
    wait_stacks: StackHashes = field(default_factory=no_hashes)  # of each of `waits`
    losses: dict[str, int] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    bystanders: list[Process] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)
    pod_events: list[PodEvent] = field(default_factory=list)
    not_watched: list[Unwatchable] = field(default_factory=list)
    annotations: list[Annotation] = field(default_factory=list)
    system: SystemSample | None = None
    gpus: GpuNews = field(default_factory=GpuNews)
    hits: int = 0  # probe hits in the window, for the agent's own overhead
    agent_cpu_ns: int = 0
    switches: int | None = None  # context switches of threads that are not traced
    switches_ns: int | None = None  # and what the scheduler's programs cost them
    walks: int = 0  # stacks walked in the window
    walk_ns: int = 0  # what that cost the threads
    overhead_share: float | None = None  # of the time of the thread that tracing cost most
    watched_share: float = 1.0  # of the window: everything was watched
    actions: list[GovernorAction] = field(default_factory=list)
