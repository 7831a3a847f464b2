"""What a scenario is made of: a made-up story in phases, and the real workload that shows the same.

Only data. `synthetic` plays the story, `live` the workload; neither knows a scenario
by name, and no detector knows of any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SECOND, MS, US = 1_000_000_000, 1_000_000, 1_000


@dataclass(frozen=True)
class Phase:
    """Some seconds that are alike. Times are medians per iteration, unless they say otherwise."""

    says: str  # to the reader, when it begins
    seconds: int
    batch_wait_ns: int = 150 * US  # for a worker to hand the batch over
    host_ns: int = 3 * MS  # Python between two pieces of work for the GPU
    copy_bytes: int = 8 << 20
    pageable_gbps: float = 0.0  # the CPU copies at this rate; 0: pinned memory, the GPU copies by itself
    launches: int = 120
    gpu_ns: int = 22 * MS  # the GPU needs for what it was given
    per_core: int = 0  # other programs on the core of each of the job's threads
    pause_every_ns: int = 0  # the job itself stops to compute something, by the clock
    pause_ns: int = 0
    context_ns: int = 0  # first call of the process
    modules: int = 0  # code loaded on first use, one after the other
    module_ns: int = 0
    cpu_share: float = 0.42  # of the machine


@dataclass(frozen=True)
class Program:
    """A process beside the job."""

    comm: str
    cmdline: str
    pids: tuple[int, ...]


@dataclass(frozen=True)
class Story:
    """A job that never ran."""

    phases: tuple[Phase, ...]
    workers: int = 0  # processes that prepare its batches
    neighbours: Program | None = None  # they take cores in phases with per_core
    rival: Program | None = None  # it works on the same GPU in the phases where rival_phases has one
    rival_phases: dict[int, Phase] = field(default_factory=dict)  # by number of the phase


@dataclass(frozen=True)
class Work:
    """The real workload: one iteration after the other, on the stub or on a card."""

    name: str = ""  # of the process; empty: the interpreter's
    launches: int = 40
    kernel_us: int = 300
    batch_bytes: int = 4 << 20
    pageable: bool = False
    host_us: int = 2000
    workers: int = 0
    item_us: int = 0  # a worker computes for each batch
    pause_every_s: float = 0.0
    pause_ms: int = 0
    modules: int = 1


@dataclass(frozen=True)
class Live:
    """What really runs in `demo --live` and `demo --gpu`."""

    work: Work = Work()
    seconds: int = 10
    cores: int = 0  # the job and its neighbours get this many of the last cores; 0: all
    neighbours: int = 0  # busy programs for each of those cores
    rival: Work | None = None
    between: tuple[int, int] = (0, 0)  # seconds in which neighbours or the rival run
    says: tuple[tuple[int, str], ...] = ()  # to the reader, from which second on
    stub: dict[str, str] = field(default_factory=dict)  # environment of the stub device


@dataclass(frozen=True)
class Scenario:
    """One problem that can be shown on purpose."""

    name: str
    summary: str
    finding: str  # the kind the diagnosis begins with
    story: Story
    live: Live
