"""Two faults at once: both must be told, in whichever order."""

from __future__ import annotations

from random import Random

from benchmarks.truth.drawn import Case, Draw, amid, call_cost, gpu_work, one_core
from benchmarks.truth.faults.cpu import programs
from benchmarks.truth.faults.data import gpu_ms, with_workers
from benchmarks.truth.faults.host import checkpoints
from benchmarks.truth.props import Cores, Hogs, Server


def hogs_and_checkpoints(random: Random) -> Draw:
    """Programs on the job's core, and checkpoints to a slow disk."""
    core = one_core(random)
    draw = checkpoints(random, 0.4, 0.6)
    draw.usual |= {"blocking": False, "sync": "end"}
    # One alone takes its turns while the job waits for the device, and costs it nothing.
    draw.props += [Cores((core,)), Hogs(programs(random, 2), (core,))]
    return draw


def workers_and_server(random: Random) -> Draw:
    """Workers that wait for their source, and a server that answers late."""
    usual = with_workers(random, random.randint(1, 2)) | {"sync": "end"}
    source_ms = gpu_ms(usual) * usual["workers"] * random.uniform(2.6, 3.2)
    server = Server(True, gpu_ms(usual) * random.uniform(0.6, 0.9), 0, random.randint(20000, 29999))
    return Draw(usual, {"batch_sleep_ms": source_ms}, [server], stub=call_cost(random), amid=amid(random))


def copies_and_collections(random: Random) -> Draw:
    """Pageable copies, and a large heap looked through in every step."""
    usual = gpu_work(random) | {"batch_bytes": random.randint(24, 48) << 20, "sync": "end"}
    usual["objects"] = random.randint(40_000, 90_000)
    later = {"pinned": False, "collect_every": 1}
    return Draw(usual, later, stub=call_cost(random), amid=amid(random))


CASES = (
    Case("hogs-and-checkpoints", ("cpu-contention", "disk-wait"), hogs_and_checkpoints,
         frozenset({"periodic-spike"})),
    Case("workers-and-server", ("data-starvation", "slow-peer"), workers_and_server),
    Case("copies-and-collections", ("copy-bound", "gc-pause"), copies_and_collections),
)  # fmt: skip
