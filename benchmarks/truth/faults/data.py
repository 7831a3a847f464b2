"""The device waits for data."""

from __future__ import annotations

from random import Random
from typing import Any

from benchmarks.truth.drawn import Case, Draw, amid, call_cost, gpu_work
from benchmarks.truth.props import Cores, Disk, Prop, WorkersBlamed


def gpu_ms(usual: dict[str, Any]) -> float:
    return float(usual["kernels"] * usual["blocks"] / 1000)


def with_workers(random: Random, workers: int, **more: Any) -> dict[str, Any]:
    usual = gpu_work(random) | {"loader": "workers", "workers": workers, "blocking": True}
    return usual | {"batch_ms": random.uniform(0.5, 1.5)} | more


def computing_workers(random: Random) -> Draw:
    """Decoding takes the workers longer than the device takes for a step."""
    usual = with_workers(random, random.choice((1, 1, 2)))
    # Two of them fill a small machine by themselves: then less is enough.
    slow_ms = gpu_ms(usual) * (
        random.uniform(1.4, 2.5) if usual["workers"] == 1 else random.uniform(2.4, 3.0)
    )
    return Draw(usual, {"batch_ms": slow_ms}, [WorkersBlamed()], stub=call_cost(random), amid=amid(random))


def waiting_workers(random: Random) -> Draw:
    """The source of the samples is slow: workers wait for it."""
    usual = with_workers(random, random.randint(1, 4))
    slow_ms = gpu_ms(usual) * usual["workers"] * random.uniform(1.4, 3)
    later = {"batch_sleep_ms": slow_ms}
    return Draw(usual, later, [WorkersBlamed()], stub=call_cost(random), amid=amid(random))


def too_many_workers(random: Random) -> Draw:
    """Many workers on one core: each batch comes late."""
    workers = random.randint(6, 10)
    # Little work each: with more they are in the job's way on that core without any fault.
    usual = with_workers(random, workers, batch_ms=random.uniform(0.1, 0.4))
    core = random.choice((0, 1))
    slow_ms = gpu_ms(usual) * random.uniform(1.5, 2.1)
    props: list[Prop] = [Cores((core,)), WorkersBlamed()]
    return Draw(usual, {"batch_ms": slow_ms}, props, stub=call_cost(random), amid=amid(random))


def items_in_the_main_thread(random: Random) -> Draw:
    """Python work for each item, where the launches come from."""
    usual = gpu_work(random) | {"loader": "inline", "sync": random.choice(("end", "lagged"))}
    factor = random.uniform(0.4, 1.2) + 0.8 * (usual["sync"] == "lagged")
    return Draw(usual, {"batch_ms": gpu_ms(usual) * factor}, stub=call_cost(random), amid=amid(random))


def slow_thread(random: Random) -> Draw:
    """One prefetching thread that waits for its source."""
    usual = gpu_work(random) | {"loader": "thread"}
    later = {"batch_sleep_ms": gpu_ms(usual) * random.uniform(1.4, 2.5)}
    return Draw(usual, later, stub=call_cost(random), amid=amid(random))


def slow_storage(random: Random) -> Draw:
    """Workers read from a disk that has become slow."""
    usual = with_workers(random, random.randint(1, 2), read_bytes=1 << 18)
    usual["read_direct"] = random.random() < 0.5
    per_s = 1000 / (gpu_ms(usual) * random.uniform(1.5, 3))
    disk = Disk(dataset_megabytes=128, read_iops=max(int(per_s), 8))
    return Draw(usual, props=[disk], stub=call_cost(random), amid=amid(random))


CASES = (
    Case("workers-compute", ("data-starvation",), computing_workers, frozenset({"cpu-contention"}), True),
    Case("workers-wait", ("data-starvation",), waiting_workers, blames=True),
    Case("too-many-workers", ("data-starvation",), too_many_workers, frozenset({"cpu-contention"}), True),
    Case("items-in-main-thread", ("data-starvation",), items_in_the_main_thread),
    Case("prefetch-thread-waits", ("data-starvation",), slow_thread),
    Case("workers-read-slowly", ("disk-wait",), slow_storage, frozenset({"data-starvation"})),
)
