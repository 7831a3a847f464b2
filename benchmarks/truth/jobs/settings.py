"""How a job behaves. A file holds two sets of them: as usual, and what differs later."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """One set. `ms` and `us` are CPU time unless the name says that it sleeps."""

    # the device
    kernels: int = 40
    blocks: int = 200  # a block is a microsecond of the modelled device
    layer_us: float = 0  # Python between two launches
    batch_bytes: int = 1 << 20
    vary_bytes: bool = False
    pinned: bool = True
    copies: int = 1
    sync: str = "end"  # end: of this step; lagged: of the step before; layer: after every kernel
    blocking: bool = False
    item_every: int = 10
    graph: str = ""  # replay, capture
    buffers: int = 0  # allocated and freed in each step
    buffer_bytes: int = 1 << 22
    kept_bytes: int = 0  # allocated in each step and never freed
    wanted_bytes: int = 0  # asked for in each step, given back when there
    stale_pointer_every: int = 0

    # batches
    loader: str = "inline"  # inline, thread, workers
    workers: int = 2
    batch_ms: float = 0.3
    batch_sleep_ms: float = 0
    dataset: str = ""
    read_bytes: int = 0
    read_direct: bool = True
    worker_keeps_bytes: int = 0

    # beside the device
    host_ms: float = 0
    pause_ms: float = 0
    checkpoint: str = ""
    checkpoint_every_s: float = 0
    checkpoint_bytes: int = 0
    scratch: str = ""
    scratch_bytes: int = 0
    objects: int = 0  # kept on the Python heap
    collect_every: int = 0
    helper_ms: float = 0  # a second Python thread: works, then rests
    helper_rest_ms: float = 5
    threads: int = 0
    server: str = ""  # a path, or HOST:PORT
    send_bytes: int = 64
    calls_every: int = 1
    chore_every_s: float = 0
    chore_ms: float = 0
    program_every_s: float = 0
    program_s: float = 0
    evaluate_every_s: float = 0
    evaluate_steps: int = 0
    steps: int = 0  # 0: no end; else this many, then nothing more

    # several ranks
    ranks: int = 1
    later_rank: int = -1  # only this one changes later; -1: all
    gradient_bytes: int = 1 << 24
    stands_still: bool = False


@dataclass(frozen=True)
class Plan:
    usual: Settings
    later: Settings = field(default_factory=Settings)

    def at(self, phase: int, rank: int = 0) -> Settings:
        changed = phase and self.usual.later_rank in (-1, rank)
        return self.later if changed else self.usual


def read_plan(path: str | Path) -> Plan:
    told = json.loads(Path(path).read_text())
    return Plan(Settings(**told["usual"]), Settings(**(told["usual"] | told["later"])))
