"""Two faults at once: both must be told, in whichever order."""

from __future__ import annotations

from random import Random
from typing import Any

from benchmarks.truth.drawn import Case, Draw
from benchmarks.truth.held_out.host import OPERATIONS
from benchmarks.truth.held_out.shape import fit, gpu_ms, shape
from benchmarks.truth.props import Disk, Server


def pageable_ms(usual: dict[str, Any]) -> float:
    """What a result takes over the bus and then to pageable memory, as the device has them by default."""
    return float(usual["result_bytes"] / 25e6 + usual["result_bytes"] / 6e6)


def notes_and_results(random: Random) -> Draw:
    """Notes written through to a slow disk, and results to pageable memory.

    One in every step would be felt on the twin's disk, too.
    """
    every = random.randint(3, 5)
    usual = shape(random, 6, 9, notes_every=every, result_bytes=random.randint(40, 64) << 20)
    per_s = OPERATIONS * 1000 / ((gpu_ms(usual) + pageable_ms(usual)) * every * random.uniform(1.2, 1.5))
    disk = Disk(write_iops=int(per_s), for_both=True)
    return fit(random, usual, {"result_pinned": False}, disk)


def buffers_and_server(random: Random) -> Draw:
    """Allocations in every step, and a server that answers late."""
    usual = shape(random, 6, 10, sync="end", buffer_bytes=random.randint(8, 64) << 20)
    server = Server(False, gpu_ms(usual) * random.uniform(0.5, 0.8))
    draw = fit(random, usual, {"buffers_mixed": True, "buffers": random.randint(18, 27)}, server)
    draw.stub["INGERO_STUB_ALLOC_US"] = str(random.randint(180, 300))
    return draw


CASES = (
    Case("notes-and-results", ("disk-wait", "copy-bound"), notes_and_results, frozenset({"sync-heavy"})),
    Case("buffers-and-server", ("alloc-churn", "slow-peer"), buffers_and_server, frozenset({"sync-heavy"})),
)
