"""The job, or a part of it, does not get its core."""

from __future__ import annotations

from random import Random
from typing import Any

from benchmarks.truth.drawn import CORES, Case, Draw, one_core
from benchmarks.truth.faults.cpu import programs
from benchmarks.truth.held_out.shape import fit, gpu_ms, services, shape
from benchmarks.truth.props import Cores, Hogs, Neighbours, Quota, WorkersQuota


def host_ms(random: Random, usual: dict[str, Any]) -> float:
    """Python work in each step, for which the GPU waits; more would be a fault of its own."""
    return gpu_ms(usual) * random.uniform(0.15, 0.3)


def bursting_services(random: Random) -> Draw:
    """Services on the job's core that rest as often as they work."""
    core = one_core(random)
    usual = shape(random, 5, 9, blocking=False, sync="stream")
    hogs = Hogs(services(random, 2, (15, 40), (8, 20)), (core,))
    return fit(random, usual, None, Cores((core,)), hogs)


def polite_crowd(random: Random) -> Draw:
    """Many programs that are nice, on all cores, and Python work in the step."""
    usual = shape(random, 4, 7, blocking=False, sync="device")
    usual["host_ms"] = host_ms(random, usual)
    return fit(random, usual, None, Hogs(programs(random, random.randint(6, 10)), CORES, nice=5))


def hogs_at_the_workers(random: Random) -> Draw:
    """The workers have a core of their own; programs come to it, the main thread's stays free."""
    core = one_core(random)
    usual = shape(random, 8, 14, loader="workers", workers=2, worker_core=core)
    usual["batch_ms"] = gpu_ms(usual) * random.uniform(0.65, 0.8)
    hogs = Hogs(programs(random, random.randint(3, 5)), (core,))
    return fit(random, usual, None, Cores((1 - core,)), hogs)


def short_period(random: Random) -> Draw:
    """A limit in short periods: the job loses a few milliseconds again and again.

    What it does between two waits for the GPU takes longer by it; the waits hide the rest.
    """
    usual = shape(random, 6, 12, blocking=False, sync="stream", loader="thread")
    usual["host_ms"] = host_ms(random, usual)
    limit = Quota(random.uniform(0.35, 0.6), random.choice((10_000, 20_000, 30_000)))
    return fit(random, usual, None, limit)


def workers_limited(random: Random) -> Draw:
    """Only the workers are in a container with a limit."""
    usual = shape(random, 9, 14, loader="workers", workers=random.randint(2, 3))
    usual["batch_ms"] = gpu_ms(usual) * random.uniform(0.5, 0.6)
    return fit(random, usual, None, WorkersQuota(random.uniform(0.2, 0.33)))


def bursting_neighbours(random: Random) -> Draw:
    """Another container has bursts on every core."""
    usual = shape(random, 5, 8, blocking=False, sync="stream")
    usual["host_ms"] = host_ms(random, usual)
    hogs = services(random, random.randint(4, 5), (30, 80), (5, 20))
    return fit(random, usual, None, Neighbours(hogs, CORES, shares=random.uniform(2, 4)))


CASES = (
    Case("services-on-its-core", ("cpu-contention",), bursting_services, blames=True),
    Case("polite-crowd", ("cpu-contention",), polite_crowd, blames=True),
    # Whoever says that batches come late says what is true, if he names who took the core.
    Case("hogs-at-the-workers", ("cpu-contention",), hogs_at_the_workers, blames=True,
         instead=frozenset({"data-starvation"})),
    Case("limit-in-short-periods", ("cpu-throttled",), short_period),
    Case("limit-of-the-workers", ("cpu-throttled",), workers_limited, frozenset({"data-starvation"})),
    Case("bursts-next-door", ("noisy-neighbour",), bursting_neighbours, frozenset({"cpu-contention"}), True),
)  # fmt: skip
