"""What a node tells the fleet every few seconds, and what the fleet says back.

Health travels as OTLP (fleet/push/otlp.py writes it, fleet/collector/otlp.py reads it); both are made from
the tables of series below, so a value that is sent is a value that is stored. Unknown is None.
Instants are Unix-epoch nanoseconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

ROUND_S = 10.0  # from one telling to the next
RUN, NUMBER = "ingero.batch.run", "ingero.batch.number"  # a batch's name, as attributes of the OTLP scope
CLUSTER, NODE = "ingero.cluster", "host.name"
ADVICE_HEADER = "ingero-fleet"  # of answers: what the fleet thinks of the node, as JSON
JOBS, GPUS, FINDINGS = 64, 64, 64  # of one node, the most that travel at a time


class GpuHealth(msgspec.Struct, frozen=True):
    """One GPU now."""

    gpu: int
    model: str = ""
    uuid: str = ""
    busy_share: float | None = None
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    sm_clock_hz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttled_s: float | None = None  # of the round


class JobHealth(msgspec.Struct, frozen=True):
    """One process that feeds a GPU: its pace against its own past, and where its time went in this round."""

    pid: int
    name: str = ""
    command: str = ""  # a digest of the command line: the same on every rank
    job: str = ""  # of the batch system
    rank: int | None = None
    world_size: int | None = None
    container: str = ""
    pod: str = ""
    namespace: str = ""
    bound_by: str = ""
    steps_per_s: float | None = None
    usual_steps_per_s: float | None = None
    gpu_busy_share: float | None = None
    time_s: dict[str, float] = {}  # by bucket, of its feeding threads

    @property
    def pace_share(self) -> float | None:
        """Of its own usual pace."""
        if self.steps_per_s is None or not self.usual_steps_per_s:
            return None
        return self.steps_per_s / self.usual_steps_per_s


class FindingHealth(msgspec.Struct, frozen=True):
    """One finding of the node's own diagnosis; `opened_ns` tells two with one id apart."""

    id: str
    opened_ns: int
    kind: str
    severity: str
    title: str
    first_ns: int
    last_ns: int
    ended: bool = False
    confidence: float = 0.0
    pid: int | None = None
    lost_share: float | None = None  # of the victim's wall time
    cause: str = ""  # the largest one, for people
    fix: str = ""


class Health(msgspec.Struct, frozen=True):
    """A node over one round."""

    node: str
    at_ns: int
    from_ns: int
    cluster: str = ""
    version: str = ""
    run: str = ""  # of the agent, different after each start
    number: int = 0  # of the round in its run
    cores_share: float | None = None  # in use
    memory_share: float | None = None
    targets: int | None = None
    lost_events: int | None = None  # in the round
    overhead_share: float | None = None
    agent_cpu_s: float | None = None  # in the round
    dropped_rounds: int = 0  # since the start: what the fleet will never hear of
    gpus: list[GpuHealth] = []
    jobs: list[JobHealth] = []
    findings: list[FindingHealth] = []


class Series(NamedTuple):
    """A field as an OTLP metric. `whole`: an integer; `over_round`: counted in the round, else now."""

    field: str
    metric: str
    unit: str
    whole: bool = False
    over_round: bool = False


_P = "ingero.fleet."
NODE_SERIES = (
    Series("cores_share", f"{_P}cpu.utilization", "1"),
    Series("memory_share", f"{_P}memory.utilization", "1"),
    Series("targets", f"{_P}targets", "{process}", whole=True),
    Series("lost_events", f"{_P}lost.events", "{event}", whole=True, over_round=True),
    Series("overhead_share", f"{_P}overhead", "1"),
    Series("agent_cpu_s", f"{_P}agent.cpu.time", "s", over_round=True),
    Series("dropped_rounds", f"{_P}dropped.rounds", "{round}", whole=True),
)
JOB_SERIES = (
    Series("steps_per_s", f"{_P}job.pace", "{step}/s"),
    Series("usual_steps_per_s", f"{_P}job.pace.usual", "{step}/s"),
    Series("gpu_busy_share", f"{_P}job.gpu.utilization", "1"),
)
GPU_SERIES = (
    Series("busy_share", f"{_P}gpu.utilization", "1"),
    Series("memory_used_bytes", f"{_P}gpu.memory.used", "By", whole=True),
    Series("memory_bytes", f"{_P}gpu.memory.total", "By", whole=True),
    Series("sm_clock_hz", f"{_P}gpu.clock", "Hz"),
    Series("power_w", f"{_P}gpu.power", "W"),
    Series("temperature_c", f"{_P}gpu.temperature", "Cel"),
    Series("throttled_s", f"{_P}gpu.throttled.time", "s", over_round=True),
)
# One of these for each job and GPU has its words as attributes; the numbers are found by pid and number.
JOB_INFO, GPU_INFO, JOB_TIME = f"{_P}job.info", f"{_P}gpu.info", f"{_P}job.time"
PID, GPU, BUCKET = "process.pid", "hw.id", "ingero.bucket"
JOB_WORDS = {
    "name": "process.executable.name",
    "command": "ingero.command.digest",
    "job": "ingero.job",
    "rank": "ingero.rank",
    "world_size": "ingero.world_size",
    "container": "container.id",
    "pod": "k8s.pod.name",
    "namespace": "k8s.namespace.name",
    "bound_by": "ingero.bound_by",
}
GPU_WORDS = {"model": "hw.model", "uuid": "hw.serial_number"}
FINDING_WORDS = {
    "id": "ingero.finding.id",
    "opened_ns": "ingero.finding.opened",
    "kind": "ingero.finding.kind",
    "first_ns": "ingero.finding.first",
    "last_ns": "ingero.finding.last",
    "ended": "ingero.finding.ended",
    "confidence": "ingero.finding.confidence",
    "pid": PID,
    "lost_share": "ingero.finding.lost_time",
    "cause": "ingero.finding.cause",
    "fix": "ingero.finding.fix",
}


class Advice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node is told about one of its jobs or GPUs: where it stands among its peers."""

    measure: str  # pace, own-time, clock
    value: float
    median: float
    limit: float  # beyond it, on the bad side, it straggles
    peers: int
    straggles: bool = False
    pid: int | None = None
    gpu: int | None = None


class Straggler(msgspec.Struct, frozen=True):
    """Somebody who holds back its peers, or lags behind them."""

    cluster: str
    node: str
    measure: str
    value: float
    median: float
    limit: float
    peers: int
    group: str  # whom it was compared with, in words
    since_ns: int
    pid: int | None = None
    gpu: int | None = None
    rank: int | None = None
    cause: str = ""  # from the node's own findings; empty: it told of none
    text: str = ""


class NodeStatus(msgspec.Struct, frozen=True):
    """One node of the fleet, now."""

    cluster: str
    node: str
    state: str  # silent, critical, straggling, high, medium, low, fine
    last_seen_ns: int
    other_time_ns: int | None = None  # what it tells is of then, by its clock, and not of now
    version: str = ""
    jobs: int = 0
    gpus: int = 0
    models: list[str] = []
    job_names: list[str] = []
    namespaces: list[str] = []
    gpu_busy_share: float | None = None  # mean
    memory_share: float | None = None  # of GPU memory, the fullest
    pace_share: float | None = None  # of its own usual, the slowest job
    lost_events: int | None = None
    overhead_share: float | None = None
    dropped_rounds: int = 0
    findings: list[FindingHealth] = []  # that last, worst first
    straggling: list[Straggler] = []


class FleetStatus(msgspec.Struct, frozen=True):
    """The fleet now, worst first; `left_out` nodes matched and are not listed."""

    at_ns: int
    total: int
    states: dict[str, int]
    nodes: list[NodeStatus]
    left_out: int = 0
    filters: dict[str, Any] = {}
    clusters: list[str] = []
    node_page: str = ""  # where a node's own dashboard is, with {node} in it


class NodePoint(msgspec.Struct, frozen=True):
    """A stretch of a node's past."""

    at_ns: int
    pace_share: float | None
    gpu_busy_share: float | None
    lost_events: int | None


class NodeHistory(msgspec.Struct, frozen=True):
    """One node over the last hours."""

    cluster: str
    node: str
    points: list[NodePoint]
    findings: list[dict[str, Any]]


STATES = ("silent", "critical", "straggling", "high", "medium", "low", "fine")  # worst first
