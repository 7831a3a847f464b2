"""Somebody the job talks to: a server, the network, another rank."""

from __future__ import annotations

from random import Random
from typing import Any

from benchmarks.truth.drawn import Case, Draw, amid, call_cost, gpu_work
from benchmarks.truth.faults.data import gpu_ms
from benchmarks.truth.props import Prop, Ranks, Server, Wire


def slow_server(random: Random) -> Draw:
    """A server on this host answers slowly: it waits itself, or it computes."""
    usual = gpu_work(random)
    slow_ms = gpu_ms(usual) * random.uniform(0.4, 1.6)
    computes = random.random() < 0.4
    port = random.randint(20000, 29999)
    server = Server(random.random() < 0.5, 0 if computes else slow_ms, slow_ms if computes else 0, port)
    return Draw(usual, props=[server], stub=call_cost(random), amid=amid(random))


def lost_packets(random: Random) -> Draw:
    """Gradients go to a server through a network that loses packets."""
    usual = gpu_work(random) | {"send_bytes": random.randint(32, 96) << 10}
    return Draw(usual, props=[Wire(random.randint(10, 22))], stub=call_cost(random), amid=amid(random))


def in_ranks(random: Random) -> tuple[dict[str, Any], int]:
    """Several ranks with little work for the CPU, so that they fit on a small machine."""
    ranks = random.randint(3, 4)
    usual = gpu_work(random, 15, 25) | {"ranks": ranks, "blocking": True, "sync": "end", "loader": "inline"}
    usual |= {"kernels": random.randint(10, 25), "gradient_bytes": random.choice((4, 16, 64)) << 20}
    usual["blocks"] = round(random.uniform(12, 20) * 1000 / usual["kernels"])
    return usual | {"later_rank": random.randrange(ranks)}, ranks


def straggler(random: Random, **later: float) -> Draw:
    usual, ranks = in_ranks(random)
    props: list[Prop] = [Ranks(ranks, usual["later_rank"])]
    return Draw(usual, dict(later), props, "ranks", call_cost(random), amid(random))


def computing_straggler(random: Random) -> Draw:
    """One rank has more to do in Python than the others."""
    return straggler(random, host_ms=random.uniform(8, 25))


def starving_straggler(random: Random) -> Draw:
    """The samples of one rank come late."""
    return straggler(random, batch_sleep_ms=random.uniform(8, 30))


def hang(random: Random) -> Draw:
    """One rank does not come to the next collective; the others wait for ever."""
    draw = straggler(random)
    draw.later = {"stands_still": True}
    draw.steps_end = True
    draw.amid = True  # who was missing cannot be told when nobody saw the last collectives
    return draw


SLOW_RANK = frozenset({"collective-imbalance", "data-starvation", "cpu-contention"})

CASES = (
    Case("slow-server", ("slow-peer",), slow_server, blames=True),
    Case("lossy-network", ("network-retransmits",), lost_packets, frozenset({"slow-peer"})),
    Case("rank-computes", ("nccl-straggler",), computing_straggler, SLOW_RANK, blames=True),
    Case("rank-starves", ("nccl-straggler",), starving_straggler, SLOW_RANK, blames=True),
    Case("rank-missing", ("nccl-hang",), hang, SLOW_RANK | {"nccl-straggler"}, blames=True, timed=False),
)
