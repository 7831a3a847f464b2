"""Collectives for tests: who comes when to which round."""

from __future__ import annotations

from collections.abc import Callable

from ingero.model.facts import Arrival
from tests.facts import MS, Story, job

PIDS = (100, 101, 102, 103)


def ranks(slices: int = 12, pids: tuple[int, ...] = PIDS, busy: int | None = None) -> Story:
    """A healthy job of several processes, one of which may be too busy to wait for the GPU."""
    story = Story(slices)
    for rank, pid in enumerate(pids):
        job({"host_cpu": 1880.0} if rank == busy else None, pid=pid, story=story)
    story.facts.gpus = {pid: {rank} for rank, pid in enumerate(pids)}
    return story


def meet(
    story: Story, late_ms: Callable[[int, int], float], pids: tuple[int, ...] = PIDS, every_ms: int = 10
) -> Story:
    """One collective every 10 ms; `late_ms(round, rank)` is how late a rank comes to it."""
    story.facts.arrivals = [
        Arrival(
            7, seq, "ncclAllReduce", rank, len(pids), pid,
            seq * every_ms * MS + int(late_ms(seq, rank) * MS), 1 << 20,
        )
        for seq in range(story.slices * 2000 // every_ms)
        for rank, pid in enumerate(pids)
    ]  # fmt: skip
    return story
