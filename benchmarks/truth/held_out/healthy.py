"""More runs in which nothing is wrong. None may have a finding of MEDIUM or above."""

from __future__ import annotations

from random import Random

from benchmarks.truth.drawn import Case, Draw, call_cost
from benchmarks.truth.held_out.shape import fit, gpu_ms, shape
from benchmarks.truth.props import Client, Disk


def feeding_threads(random: Random) -> Draw:
    """Two or three threads feed the device, each on a stream of its own."""
    return fit(random, shape(random, 6, 12, feeders=random.randint(2, 3), sync="stream", streams=1))


def double_buffering(random: Random) -> Draw:
    """The next batch is copied while this one is computed on; events keep the order."""
    usual = shape(
        random, 8, 14, double_buffered=True, sync="lagged", batch_bytes=random.randint(16, 96) << 20
    )
    return fit(random, usual)


def ends(random: Random) -> Draw:
    """The job has done all it had to do while it is watched."""
    usual = shape(random, 6, 12, loader=random.choice(("inline", "thread")))
    usual["steps"] = round(random.uniform(5, 7) * 1000 / (gpu_ms(usual) + 1))
    draw = fit(random, usual)
    draw.steps_end = True
    return draw


def page_cache(random: Random) -> Draw:
    """Samples are read from files that the kernel has in memory."""
    loader = random.choice(("inline", "thread", "workers"))
    usual = shape(random, 6, 12, loader=loader, read_bytes=random.randint(1, 4) << 18, read_again=True)
    return fit(random, usual | {"read_direct": False}, None, Disk(dataset_megabytes=96))


def logging_thread(random: Random) -> Draw:
    """A thread of its own formats and writes what the steps log."""
    return fit(random, shape(random, 6, 12, log_lines=random.randint(1, 6)))


def low_load(random: Random) -> Draw:
    """A served model that is asked now and then."""
    usual = shape(random, 3, 9, sync="end")
    client = Client(random.randint(1, 2), random.uniform(60, 200))
    return Draw(usual, props=[client], script="serve", stub=call_cost(random))


def accumulation(random: Random) -> Draw:
    """Gradients are gathered; the optimizer runs in every eighth step or so."""
    usual = shape(random, 6, 10, accumulate=random.choice((4, 8, 16)))
    return fit(random, usual | {"optimizer_kernels": round(usual["kernels"] * random.uniform(0.5, 2))})


def one_evaluation(random: Random) -> Draw:
    """Once, for seconds, the device evaluates instead of training."""
    usual = shape(random, 6, 10, sync="stream", evaluate_at_s=random.uniform(4, 6))
    return fit(random, usual | {"evaluate_steps": round(random.uniform(1000, 2500) / gpu_ms(usual))})


CASES = tuple(
    Case(name, (), draw)
    for name, draw in (
        ("feeding-threads", feeding_threads),
        ("double-buffering", double_buffering),
        ("ends-while-watched", ends),
        ("page-cache", page_cache),
        ("logging-thread", logging_thread),
        ("low-load", low_load),
        ("accumulation", accumulation),
        ("one-evaluation", one_evaluation),
    )
)
