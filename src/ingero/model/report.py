"""What `explain` answers: the diagnosis of a stretch of time. Contract of `explain --json`."""

from __future__ import annotations

import msgspec

from ingero.model.finding import Finding, SourceLine, Unexplained, Who


class ReportWindow(msgspec.Struct, frozen=True):
    from_ns: int
    to_ns: int
    anchor: str = "recording"  # now, last-record, recording, given, label: what the range was counted from


class GpuLine(msgspec.Struct, frozen=True):
    """A card over the range: means, and the most memory and heat."""

    gpu_id: int
    name: str
    uuid: str | None
    gpu_share: float | None
    memory_used_bytes: int | None
    memory_bytes: int | None
    sm_clock_mhz: int | None
    sm_clock_max_mhz: int | None
    power_mw: int | None
    power_limit_mw: int | None
    temperature_c: int | None
    clock_reasons: list[str]  # everything that held the clock down at some time
    lost: bool
    node: str | None = None  # where the report is of several


class SystemContext(msgspec.Struct, frozen=True):
    """The machine over the range: means, and the last load."""

    cpu_share: float | None
    memory_share: float | None
    load1: float | None
    cores: int | None
    swap_bytes: int | None
    psi: dict[str, float | None]
    gpus: list[GpuLine] = []  # empty: no counters of cards in this range


class OperationLine(msgspec.Struct, frozen=True):
    layer: str
    op: str
    count: int
    exact: bool
    p50_ns: int | None
    p95_ns: int | None
    p99_ns: int | None
    max_ns: int | None
    wall_share: float
    bytes: int | None
    count_error: int = 0  # of an estimate


class ThreadLine(msgspec.Struct, frozen=True):
    """One thread that feeds a GPU, or works for one that does."""

    tid: int
    comm: str
    feeder: bool
    ns: int
    time: dict[str, int]
    voluntary_switches: int
    involuntary_switches: int
    # Of time, the part without a core: a wait for the GPU may spin on one. None: not recorded
    off_cpu: dict[str, int] | None = None


class Stall(msgspec.Struct, frozen=True):
    """The longest single wait of a process."""

    at_ns: int
    ns: int
    bucket: str
    text: str


class StepTime(msgspec.Struct, frozen=True):
    """One iteration of the job's loop, found from its calls."""

    op: str  # the operation that marks it
    count: int
    usual_ns: int
    now_ns: int


class CodeLine(msgspec.Struct, frozen=True):
    """A line of a process's code, and what it costs.

    `what` says what was counted: `call` calls of `op`; `cpu` samples on a core, by thread;
    `wait` waits of a millisecond and longer in `bucket`, by thread; `gil` the samples of a
    thread that others waited for with the interpreter's lock. `ns` is time inside the calls,
    on the core, waited, or the holder's on the core; `share` is the part of all of that
    kind: of `op`, of the thread's samples, of the thread's waits in `bucket`.
    """

    what: str
    file: str | None  # None: no Python frame; then `function` is the native one
    line: int | None
    function: str
    ns: int
    count: int  # calls, samples or waits; estimated where rows stand for several
    share: float
    op: str | None = None
    tid: int | None = None
    bucket: str | None = None
    bytes: int | None = None
    collecting_share: float | None = None  # of the samples: in the garbage collector
    held_ns: int | None = None  # how long others waited for this thread's lock
    stack_hash: int | None = None  # the stack with most of it


class ProcessReport(msgspec.Struct, frozen=True):
    """Where a process's time went. `time` covers feeding threads and sums to `threads_ns`."""

    pid: int
    comm: str
    cmdline: str | None
    container: str | None
    threads: list[ThreadLine]
    wall_ns: int
    threads_ns: int
    time: dict[str, int]
    operations: list[OperationLine]
    step: StepTime | None = None
    gpu_idle_ns: int | None = None  # of threads_ns: the GPU had been given nothing to do
    worst_stall: Stall | None = None
    cpu_taken_ns: int = 0  # ran while a feeding thread of another process waited for that core
    lines: list[CodeLine] = []  # the lines that cost most, of each kind; empty without stacks
    node: str | None = None  # where the report is of several
    estimated_ns: int = 0  # of time: in cuda_cpu or host_cpu by estimate, calls were not watched then
    off_cpu: dict[str, int] | None = None  # as of a thread: of feeding threads, of all where none feeds


class LabelTime(msgspec.Struct, frozen=True):
    """One value of a label that jobs gave, such as a step, and where its time went."""

    value: str
    pids: tuple[int, ...]
    took_ns: int  # how long it held, in the process where it did longest
    time: dict[str, int]  # of the feeding threads meanwhile
    located_share: float | None  # of that: calls and waits seen within it; the rest is spread over seconds
    nodes: tuple[str, ...] = ()  # of each of the PIDs, where the report is of several


class LabelReport(msgspec.Struct, frozen=True):
    """Where the time of each value of a label went, the one that held longest first."""

    key: str
    count: int  # values in all
    usual_ns: int | None  # how long one holds, half of them less
    values: list[LabelTime]


class Loss(msgspec.Struct, frozen=True):
    reason: str
    count: int
    from_ns: int
    to_ns: int


class GovernorAct(msgspec.Struct, frozen=True):
    """Something was watched less from then on to keep within the budget, or more again."""

    at_ns: int
    what: str
    before: str
    after: str
    why: str
    watched_share: float  # of the time


class OverheadReport(msgspec.Struct, frozen=True):
    """`share` is of the time of the thread that tracing cost most."""

    share: float | None
    budget: float | None
    hits_per_s: float | None
    ns_per_hit: float | None
    actions: list[GovernorAct]
    watched_share: float | None = None  # of the time: everything was watched
    agent_cpu_share: float | None = None  # of a core: what the agent itself computed
    taken_from_job_share: float | None = None  # of feeding threads' time: waited for a core the agent had
    bystanders_share: float | None = None  # of all cores: what context switches of everybody else cost more
    switches_per_s: float | None = None  # context switches of everybody else


class NotWatched(msgspec.Struct, frozen=True):
    what: str
    why: str


class Bound(msgspec.Struct, frozen=True):
    """What limits a job that feeds a GPU, at the end of the time looked at."""

    pid: int
    comm: str
    by: str  # gpu, requests (it waits to be asked), or a bucket
    share: float  # of its time; of the GPU: how busy it is
    what: str | None  # of time on a core: the kind of call, or gc
    source: SourceLine | None
    who: list[Who]
    gpu_busy_share: float | None
    steps_per_s: float | None
    usual_steps_per_s: float | None = None  # where the pace changed
    since_ns: int | None = None  # when it did
    node: str | None = None  # where the report is of several
    text: str = ""  # the same for people
    over_ns: int | None = None  # how long a time the shares are of


class Report(msgspec.Struct, frozen=True):
    node: str
    window: ReportWindow
    system: SystemContext
    findings: list[Finding]
    processes: list[ProcessReport]
    losses: list[Loss]
    overhead: OverheadReport
    not_watched: list[NotWatched]
    unexplained: list[Unexplained] = []
    bound: list[Bound] = []
    recorded_ns: int | None = None  # how much of the window was recorded
    unfinished: bool = False  # the recording has no end of its own: what was lost last is not known
    by: LabelReport | None = None  # where a label was asked for

    @property
    def of_several(self) -> bool:
        """Whether it is of several nodes."""
        return any(process.node is not None for process in self.processes)
