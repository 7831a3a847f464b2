"""Servers, the network and ranks."""

from __future__ import annotations

from random import Random
from typing import Any

from benchmarks.truth.drawn import Case, Draw, amid, call_cost
from benchmarks.truth.faults.cpu import programs
from benchmarks.truth.faults.peers import SLOW_RANK
from benchmarks.truth.held_out.shape import fit, gpu_ms, shape
from benchmarks.truth.props import Hogs, QuickServer, Ranks, SecondServer, Wire


def one_of_two_servers(random: Random) -> Draw:
    """Two servers are asked in each step; one of them is slow now and then."""
    usual = shape(random, 5, 10)
    every = random.randint(2, 4)
    slow = SecondServer(gpu_ms(usual) * every * random.uniform(0.5, 1.4), every)
    return fit(random, usual, None, QuickServer(tcp=False), slow)


def pushes(random: Random) -> Draw:
    """Large messages every few steps, over a network that loses packets."""
    every = random.randint(3, 5)
    usual = shape(random, 5, 9, calls_every=every, send_bytes=random.randint(200, 320) << 10)
    return fit(random, usual, None, Wire(random.randint(18, 30)))


def two_ranks(random: Random) -> dict[str, Any]:
    """Each rank on a core of its own, with Python work in each step."""
    kernels = random.randint(8, 20)
    return {
        "ranks": 2, "pin_ranks": True, "later_rank": random.randrange(2), "blocking": True, "sync": "lagged",
        "kernels": kernels, "blocks": round(random.uniform(9, 15) * 1000 / kernels), "item_every": 0,
        "host_ms": random.uniform(5, 7), "gradient_bytes": random.choice((1, 8, 32)) << 20,
    }  # fmt: skip


def rank_without_core(random: Random) -> Draw:
    """Programs on the core of one rank; the other one waits for it."""
    usual = two_ranks(random)
    rank = usual["later_rank"]
    props = [Ranks(2, rank), Hogs(programs(random, 3), (rank,))]
    return Draw(usual, {}, props, "ranks", call_cost(random), amid(random))


def rank_gone(random: Random) -> Draw:
    """One rank ends as after a crash; the others wait for it for ever."""
    usual = two_ranks(random) | {"ranks": random.randint(2, 4), "pin_ranks": False, "host_ms": 1}
    usual |= {"later_rank": random.randrange(1, usual["ranks"])}
    props = [Ranks(usual["ranks"], usual["later_rank"])]
    return Draw(usual, {"leaves": True}, list(props), "ranks", call_cost(random), True, steps_end=True)


CASES = (
    Case("one-of-two-servers", ("slow-peer",), one_of_two_servers, blames=True),
    Case("pushes-over-lossy-network", ("network-retransmits",), pushes,
         frozenset({"slow-peer", "periodic-spike"})),
    # Why the rank is late is a better answer still than that it is.
    Case("rank-without-core", ("nccl-straggler",), rank_without_core, SLOW_RANK, blames=True,
         instead=frozenset({"cpu-contention"})),
    Case("rank-gone", ("nccl-hang",), rank_gone, SLOW_RANK | {"nccl-straggler"}, blames=True, timed=False),
)  # fmt: skip
