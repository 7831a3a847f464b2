"""A job of several ranks on several nodes, each node with a clock of its own, made up for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from ingero.correlate.timeline import Timeline
from ingero.detectors.across import Across, judge_across
from ingero.model.clocks import Clocks
from ingero.model.facts import Arrival
from tests.facts import BY_NAME, MS, SECOND, Story, job

NODES = ("gpu-node-01", "gpu-node-02", "gpu-node-03", "gpu-node-04")
RANKS = 2  # on each
STEP_MS = 100
COLLECTIVE_MS = 5
SLICES = 12
SHIPPER = 77
START_NS = 1000 * SECOND


def pid_of(rank: int) -> int:
    """The same numbers on every node: nothing may take them for one process."""
    return 100 + rank % RANKS


def node_of(rank: int) -> str:
    return NODES[rank // RANKS]


def in_time(_step: int, _rank: int) -> float:
    return 0.0


@dataclass
class Cluster:
    """Ranks that meet once a step; `late_ms(step, rank)` is by how much one comes later."""

    late_ms: Callable[[int, int], float] = in_time
    offsets_ms: dict[str, float] = field(default_factory=dict)
    drift_ppm: dict[str, float] = field(default_factory=dict)
    noise_ms: float = 0.3
    uneven_ms: float = 0.0  # steps of all ranks
    seed: int = 1
    waits: bool = True  # for the GPU, after each collective
    shipper_ms: dict[int, float] = field(default_factory=dict)  # by rank: it has the core, in every step
    only: tuple[int, ...] | None = None  # ranks that were recorded
    nccl: bool = True
    met_at: dict[str, int] | None = None  # by node: the step at which its agent came, amid the job
    command: str = "python train.py"

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.steps = SLICES * 2000 // STEP_MS
        self.stories = {node: Story(SLICES) for node in NODES}
        for node, story in self.stories.items():
            story.facts.node = node
            story.facts.origin_ns = story.facts.from_ns = self.own(node, START_NS)
            story.facts.to_ns = self.own(node, START_NS + SLICES * 2 * SECOND)
        self.ranks = [rank for rank in range(len(NODES) * RANKS) if self.only is None or rank in self.only]
        for rank in self.ranks:
            self._accounted(rank)
        if self.nccl:
            self._met()

    def own(self, node: str, at_ns: float) -> int:
        """An instant by the node's clock."""
        drifted = (at_ns - START_NS) * self.drift_ppm.get(node, 0.0) / 1e6
        return int(at_ns + self.offsets_ms.get(node, 0.0) * MS + drifted)

    def _accounted(self, rank: int) -> None:
        story, pid = self.stories[node_of(rank)], pid_of(rank)
        taken = self.shipper_ms.get(rank, 0.0) * 2000 / STEP_MS
        job({"runqueue": taken, "host_cpu": 100.0}, {"runqueue": taken}, pid=pid, story=story, steps=20)
        story.process(pid, "python3", cmdline=self.command, rank=rank, world_size=len(NODES) * RANKS)
        if taken:
            story.process(SHIPPER, "log-shipper")
            story.culprit(SHIPPER, "log-shipper", taken, victim=pid)

    def _met(self) -> None:
        size = len(NODES) * RANKS
        waits: dict[int, list[tuple[int, int]]] = {rank: [] for rank in self.ranks}
        for step in range(self.steps):
            start = START_NS + step * STEP_MS * MS + 10 * MS + self.random.uniform(0, self.uneven_ms) * MS
            came = {
                rank: start + (self.late_ms(step, rank) + self.random.uniform(0, self.noise_ms)) * MS
                for rank in range(size)
            }
            end = max(came.values()) + COLLECTIVE_MS * MS
            for rank in self.ranks:
                node = node_of(rank)
                at, over = self.own(node, came[rank]), end + self.random.expovariate(8 / MS)
                if self.met_at is not None and step < self.met_at.get(node, 0):
                    continue
                seq = step if self.met_at is None else -1
                facts = self.stories[node].facts
                (facts.arrivals if seq >= 0 else facts.unmatched).append(
                    Arrival(7, seq, "ncclAllReduce", rank, size, pid_of(rank), at, 1 << 20)
                )
                waits[rank].append((at + 1000, self.own(node, over) - at - 1000))
        if self.waits:
            self._waited(waits)

    def _waited(self, waits: dict[int, list[tuple[int, int]]]) -> None:
        tables = {(node_of(rank), pid_of(rank)): np.array(rows, np.int64) for rank, rows in waits.items()}
        for name, story in self.stories.items():

            def marks(pid: int, op: int, name: str = name) -> np.ndarray:
                known = tables.get((name, pid)) if op == BY_NAME["cudaStreamSynchronize"] else None
                return np.zeros((0, 2), np.int64) if known is None else known

            story.facts.marks = marks

    def timelines(self) -> dict[str, Timeline]:
        return {name: story.timeline() for name, story in self.stories.items()}

    def judge(self, known: Clocks | None = None) -> Across:
        return judge_across(self.timelines(), known or Clocks())
