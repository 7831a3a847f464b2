"""Disk, memory, the Python interpreter: what the main thread waits for on its own host."""

from __future__ import annotations

from random import Random

from benchmarks.truth.drawn import Case, Draw, amid, call_cost, gpu_work
from benchmarks.truth.faults.data import gpu_ms
from benchmarks.truth.props import Disk, MemoryLimit, WorkersBlamed


def checkpoints(random: Random, least: float = 0.4, most: float = 1.3) -> Draw:
    """Checkpoints are written through to a disk that has become slow: so much of the time between them."""
    megabytes, every_s = random.randint(2, 6), random.uniform(0.2, 0.5)
    usual = gpu_work(random) | {"checkpoint_every_s": every_s, "checkpoint_bytes": megabytes << 20}
    took_s = every_s * random.uniform(least, most)
    disk = Disk(write_bytes_per_s=int((megabytes << 20) / took_s))
    return Draw(usual, props=[disk], stub=call_cost(random), amid=amid(random))


def reads_in_main_thread(random: Random) -> Draw:
    """Samples are read where the launches come from, from a slow disk."""
    usual = gpu_work(random) | {"loader": "inline", "read_bytes": 1 << 18, "sync": "end"}
    usual["read_direct"] = random.random() < 0.5
    disk = Disk(dataset_megabytes=128, read_iops=random.randint(40, 110))
    return Draw(usual, props=[disk], stub=call_cost(random), amid=amid(random))


def little_memory(random: Random) -> Draw:
    """The memory limit leaves no room for the files the job writes: it must reclaim."""
    usual = gpu_work(random) | {"scratch_bytes": 1 << 20, "sync": "end"}
    rate = int((1 << 20) * 1000 / (gpu_ms(usual) * random.uniform(1.5, 2.6)))
    disk = Disk(write_bytes_per_s=rate, cache_megabytes=64, for_everybody=True)
    limit = MemoryLimit(random.randint(16, 32))
    return Draw(usual, props=[limit, disk], stub=call_cost(random), amid=amid(random))


def worker_killed(random: Random) -> Draw:
    """A worker keeps what it read until the limit kills it; the job starts another one."""
    usual = gpu_work(random) | {"loader": "workers", "workers": random.randint(1, 2), "blocking": True}
    later = {"worker_keeps_bytes": random.randint(2, 4) << 20}
    limit = MemoryLimit(random.randint(192, 320))
    return Draw(usual, later, [WorkersBlamed(), limit], stub=call_cost(random), amid=amid(random))


def busy_helper(random: Random) -> Draw:
    """A second Python thread computes and holds the interpreter's lock."""
    usual = gpu_work(random) | {"batch_ms": random.uniform(0.5, 1.5)}
    later = {"helper_ms": random.uniform(20, 60), "helper_rest_ms": random.uniform(3, 15)}
    return Draw(usual, later, stub=call_cost(random), amid=amid(random))


def collections(random: Random) -> Draw:
    """A large heap, looked through in every few steps."""
    usual = gpu_work(random, 8, 14) | {"objects": random.randint(90_000, 250_000), "sync": "end"}
    return Draw(usual, {"collect_every": 1}, stub=call_cost(random), amid=amid(random))


def spikes(random: Random) -> Draw:
    """Every so often the main thread does something long."""
    every_s = random.uniform(0.9, 1.4)
    usual = gpu_work(random)
    later = {"chore_every_s": every_s, "chore_ms": every_s * 1000 * random.uniform(0.3, 0.6)}
    return Draw(usual, later, stub=call_cost(random), amid=amid(random))


def spikes_of_a_program(random: Random) -> Draw:
    """Every so often the main thread runs a program and waits for it, to ship its logs say."""
    every_s = random.uniform(0.9, 1.4)
    usual = gpu_work(random)
    later = {"program_every_s": every_s, "program_s": every_s * random.uniform(0.3, 0.6)}
    return Draw(usual, later, stub=call_cost(random), amid=amid(random))


CASES = (
    Case("checkpoint-to-slow-disk", ("disk-wait",), checkpoints, frozenset({"periodic-spike"})),
    Case("reads-in-main-thread", ("disk-wait",), reads_in_main_thread, frozenset({"data-starvation"})),
    Case("memory-limit", ("memory-pressure",), little_memory, frozenset({"disk-wait"})),
    Case(
        "worker-out-of-memory", ("oom-kill",), worker_killed,
        frozenset({"data-starvation", "memory-pressure"}), blames=True, timed=False,
    ),
    Case("busy-helper-thread", ("gil-contention",), busy_helper),
    Case("garbage-collection", ("gc-pause",), collections),
    Case("spike-computing", ("periodic-spike",), spikes, frozenset({"data-starvation"})),
    Case("spike-of-a-program", ("periodic-spike",), spikes_of_a_program, frozenset({"slow-peer"})),
)  # fmt: skip
