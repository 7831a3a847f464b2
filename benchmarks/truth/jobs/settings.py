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
    # in flow.py also: stream; device; poll: asked again and again, with naps
    poll_us: float = 100
    streams: int = 1
    double_buffered: bool = False  # copies on a stream of their own, ordered by events
    result_bytes: int = 0  # copied back in each step
    result_pinned: bool = True
    look_layers: int = 0  # a number is copied back after every so many kernels
    shapes: int = 1  # of batches; a graph serves one
    graphs_kept: int = 8
    accumulate: int = 0  # steps until the optimizer runs
    optimizer_kernels: int = 0
    blocking: bool = False
    item_every: int = 10
    graph: str = ""  # replay, capture
    buffers: int = 0  # allocated and freed in each step
    buffer_bytes: int = 1 << 22
    buffers_mixed: bool = False  # several sizes, some from the stream's pool
    kept_bytes: int = 0  # allocated in each step and never freed
    kept_every: int = 1
    wanted_bytes: int = 0  # asked for in each step, given back when there
    wanted_once: bool = False
    stale_pointer_every: int = 0

    # batches
    loader: str = "inline"  # inline, thread, workers; in sources.py also pickled, decoded, child, mapped
    workers: int = 2
    batch_ms: float = 0.3
    batch_sleep_ms: float = 0
    dataset: str = ""
    read_bytes: int = 0
    read_direct: bool = True
    read_chunk_bytes: int = 1 << 18
    read_again: bool = False  # what was read may be kept by the kernel; all of it is read once at first
    worker_keeps_bytes: int = 0
    worker_core: int = -1
    late_worker: int = -1  # this one alone sleeps
    late_worker_sleep_ms: float = 0
    batch_items: int = 200  # pickled
    pages: int = 4  # mapped

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
    encoders: int = 0  # threads that turn records into text
    encoded_items: int = 0
    encoder_rest_ms: float = 5
    log_lines: int = 0  # for a logging thread, in each step
    turnover: int = 0  # new records in each step
    records: int = 0  # so many at most
    collects: bool = True  # by itself
    keeps_bytes: int = 0  # in each step
    notes: str = ""  # a small record is written through every so many steps
    notes_every: int = 0
    nap_every_s: float = 0
    nap_ms: float = 0
    threads: int = 0
    server: str = ""  # a path, or HOST:PORT
    second_server: str = ""
    send_bytes: int = 64
    calls_every: int = 1
    chore_every_s: float = 0
    chore_ms: float = 0
    program_every_s: float = 0
    program_s: float = 0
    evaluate_every_s: float = 0
    evaluate_steps: int = 0
    evaluate_at_s: float = 0  # once
    steps: int = 0  # 0: no end; else this many, then nothing more; fit.py ends then
    burst_steps: int = 0  # then a rest
    rest_ms: float = 0
    feeders: int = 1  # threads that train, each on a stream of its own

    # several ranks
    ranks: int = 1
    later_rank: int = -1  # only this one changes later; -1: all
    gradient_bytes: int = 1 << 24
    stands_still: bool = False
    leaves: bool = False
    pin_ranks: bool = False


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
