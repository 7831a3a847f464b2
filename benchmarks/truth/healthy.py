"""Runs in which nothing is wrong, though some look odd. None may have a finding of MEDIUM or above."""

from __future__ import annotations

from random import Random

from benchmarks.truth.drawn import Case, Draw, any_loader, call_cost, gpu_work, one_core
from benchmarks.truth.faults.cpu import programs
from benchmarks.truth.props import Client, Cores, Hogs, Prop, Stops, Writer


def plain(random: Random) -> Draw:
    return Draw(gpu_work(random) | any_loader(random), stub=call_cost(random))


def sleepy(random: Random) -> Draw:
    """Sleeps between steps, on purpose."""
    return Draw(gpu_work(random) | {"pause_ms": random.uniform(5, 50)}, stub=call_cost(random))


def serving(random: Random) -> Draw:
    """Waits for requests, which come in bursts."""
    usual = gpu_work(random, 2, 6) | {"sync": "end"}
    client = Client(random.randint(5, 30), random.uniform(50, 300))
    return Draw(usual, props=[client], script="serve", stub=call_cost(random))


def sizes(random: Random) -> Draw:
    """Batches of very different sizes: their copies take as long as their sizes say."""
    usual = gpu_work(random) | {"vary_bytes": True, "batch_bytes": random.randint(16, 48) << 20}
    return Draw(usual | {"sync": "lagged"}, stub=call_cost(random))


def cold_start(random: Random) -> Draw:
    """Slow to start, then fine."""
    stub = call_cost(random) | {
        "INGERO_STUB_INIT_MS": str(random.randint(800, 1800)),
        "INGERO_STUB_LOAD_MS": str(random.randint(50, 300)),
    }
    return Draw(gpu_work(random) | any_loader(random), stub=stub, attach_first=True)


def idle(random: Random) -> Draw:
    """A few steps, then nothing more is asked for."""
    return Draw(gpu_work(random) | {"steps": 3}, stub=call_cost(random), steps_end=True)


def debugged(random: Random) -> Draw:
    """Stopped and continued now and then, as under a debugger."""
    props: list[Prop] = [Stops(random.uniform(0.3, 0.8), random.uniform(1.5, 2.5))]
    return Draw(gpu_work(random), props=props, stub=call_cost(random))


def many_threads(random: Random) -> Draw:
    usual = gpu_work(random) | any_loader(random) | {"threads": random.randint(40, 100)}
    return Draw(usual, stub=call_cost(random))


def hidden_hog(random: Random) -> Draw:
    """A program on the job's core, whose damage the device hides: there is always work queued."""
    core = one_core(random)
    usual = gpu_work(random, 30, 45) | {"blocking": True, "sync": "lagged"}
    hogs = Hogs(programs(random, 1), (core,), nice=5)
    return Draw(usual, props=[Cores((core,)), hogs], stub=call_cost(random), amid=False)


def busy_disk(random: Random) -> Draw:
    """Somebody else writes to the disk."""
    props: list[Prop] = [Writer(random.randint(32, 128))]
    return Draw(gpu_work(random) | {"blocking": True}, props=props, stub=call_cost(random))


def evaluation(random: Random) -> Draw:
    """Training stops now and then for an evaluation on the device."""
    usual = gpu_work(random) | {
        "evaluate_every_s": random.uniform(2, 3), "evaluate_steps": random.randint(20, 60),
    }  # fmt: skip
    return Draw(usual, stub=call_cost(random))


def ranks_in_step(random: Random) -> Draw:
    """Several ranks, none behind the others."""
    from benchmarks.truth.faults.peers import straggler

    return straggler(random)


CASES = tuple(
    Case(name, (), draw)
    for name, draw in (
        ("plain", plain),
        ("sleepy", sleepy),
        ("bursty-serving", serving),
        ("copies-of-all-sizes", sizes),
        ("cold-start", cold_start),
        ("idle", idle),
        ("debugged", debugged),
        ("many-threads", many_threads),
        ("hidden-hog", hidden_hog),
        ("busy-disk", busy_disk),
        ("evaluation", evaluation),
        ("ranks-in-step", ranks_in_step),
    )
)
