"""What is done to a training job on a card, and what should be said of it.

Amounts are drawn: nobody knows how bad a real fault is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True, slots=True)
class Case:
    """`expected`: the kind that must come first; empty: a healthy job.

    `instead`: answers that are as good. `around`: what else runs (see around.py).
    `lined`: a line of the program is to blame, and marked there.
    """

    name: str
    expected: str = ""
    fault: str = ""
    amount: tuple[float, float] = (0, 0)
    model: str = "small-training"
    around: tuple[str, ...] = ()
    instead: frozenset[str] = frozenset()
    lined: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    cold: bool = False
    cores: int = 4

    @property
    def healthy(self) -> bool:
        return not self.expected

    def drawn(self, seed: int) -> float:
        return Random(f"{seed}:{self.name}").uniform(*self.amount)


STARVED = frozenset({"data-starvation"})

CASES = (
    Case("hogs", "cpu-contention", around=("hogs",), cores=2),
    Case("gil-hog", "gil-contention", "gil-hog", lined=True),
    Case("slow-loader-inline", "data-starvation", "slow-loader-inline", (2, 8), lined=True),
    Case("slow-loader-workers", "data-starvation", "slow-loader-workers", (8, 20), lined=True),
    Case(
        "too-many-workers", "data-starvation", "too-many-workers", (8, 16), lined=True,
        instead=frozenset({"cpu-contention"}), cores=2,
    ),
    Case("empty-cache", "alloc-churn", "empty-cache", (1, 4), lined=True),
    Case("items", "sync-heavy", "items", (100, 400), lined=True),
    Case("pageable", "copy-bound", "pageable", (16, 96), lined=True),
    Case("no-allocator", "alloc-churn", environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    Case("second-job", "gpu-shared", model="large-training", around=("second-job",)),
    Case("gc", "gc-pause", "gc", (2e5, 1e6), lined=True),
    Case("checkpoints", "disk-wait", "checkpoints", (32, 96), lined=True),
    Case("leak", "gpu-memory-leak", "leak", (8, 32), lined=True),
    Case("recapture", "graph-trouble", "recapture", lined=True),
    Case("tiny", "launch-bound", "tiny", (1000, 4000), lined=True),
    Case("gpu-bound", model="large-training"),
    Case("eager-small", "launch-bound"),
    Case("cold-start", model="large-training", cold=True),
    Case("bursty-serving", fault="requests", amount=(5, 60), model="graph-decode"),
    Case("evaluation", fault="evaluation", amount=(20, 80), model="large-training"),
    Case("quick-loader", fault="quick-loader", amount=(0.05, 0.2), cores=8, model="large-training"),
    Case("hidden-hog", model="large-training", around=("one-hog",)),
)  # fmt: skip
