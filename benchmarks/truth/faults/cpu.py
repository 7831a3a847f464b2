"""The job does not get its core."""

from __future__ import annotations

from random import Random

from benchmarks.truth.drawn import CORES, Case, Draw, amid, call_cost, gpu_work, one_core
from benchmarks.truth.props import Cores, Hogs, Neighbours, Quota

PROGRAMS = (
    ("sha256sum", "/dev/zero"),
    ("md5sum", "/dev/zero"),
    ("gzip", "-c", "/dev/zero"),
    ("xz", "-T1", "-c", "/dev/zero"),
    ("cksum", "/dev/zero"),
)


def programs(random: Random, count: int) -> tuple[tuple[str, ...], ...]:
    return tuple(random.choice(PROGRAMS) for _ in range(count))


def hogs_on_its_core(random: Random) -> Draw:
    """Programs on the very core the job is pinned to."""
    core = one_core(random)
    usual = gpu_work(random, 4, 8) | {"blocking": False, "sync": "end"}
    hogs = Hogs(programs(random, random.randint(2, 3)), (core,))
    return Draw(usual, props=[Cores((core,)), hogs], stub=call_cost(random), amid=amid(random))


def hogs_everywhere(random: Random) -> Draw:
    """More programs than cores, nobody pinned."""
    usual = gpu_work(random, 4, 8) | {"blocking": False, "sync": "end"}
    hogs = Hogs(programs(random, random.randint(5, 7)), CORES)
    return Draw(usual, props=[hogs], stub=call_cost(random), amid=amid(random))


def neighbour(random: Random) -> Draw:
    """Another container takes the core."""
    core = one_core(random)
    usual = gpu_work(random, 4, 8) | {"blocking": False, "sync": "end"}
    commands = programs(random, random.randint(1, 3))
    hogs = Neighbours(commands, (core,), shares=random.uniform(1.5, 3))
    return Draw(usual, props=[Cores((core,)), hogs], stub=call_cost(random), amid=amid(random))


def quota(random: Random) -> Draw:
    """The container's CPU limit is below what the job needs."""
    usual = gpu_work(random) | {"blocking": False, "sync": "end", "loader": "inline"}
    limit = Quota(random.uniform(0.3, 0.6))
    return Draw(usual, props=[limit], stub=call_cost(random), amid=amid(random))


def quota_with_workers(random: Random) -> Draw:
    """The limit holds for the job and its workers together."""
    usual = gpu_work(random, 8, 14) | {"blocking": False, "sync": "end", "loader": "workers", "workers": 2}
    usual["batch_ms"] = random.uniform(4, 7)
    return Draw(usual, props=[Quota(random.uniform(0.6, 0.9))], stub=call_cost(random), amid=amid(random))


CASES = (
    Case("hogs-on-its-core", ("cpu-contention",), hogs_on_its_core, blames=True),
    Case("hogs-everywhere", ("cpu-contention",), hogs_everywhere, blames=True),
    Case("container-next-door", ("noisy-neighbour",), neighbour, frozenset({"cpu-contention"}), blames=True),
    Case("cpu-limit", ("cpu-throttled",), quota),
    Case("cpu-limit-with-workers", ("cpu-throttled",), quota_with_workers, frozenset({"data-starvation"})),
)
