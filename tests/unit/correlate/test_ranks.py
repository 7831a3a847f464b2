"""Collectives of ranks whose communicator was made before the trace, laid side by side by time."""

from __future__ import annotations

import pytest

from ingero.correlate.ranks import align
from ingero.model.facts import Arrival

MS = 1_000_000
STEP, ROUNDS = 30 * MS, 50


def job(late_ms: float, missed: int = 0, done: bool = True) -> list[Arrival]:
    """Three ranks, the second of them late in every round; the others' begin `missed` rounds later."""
    found = []
    for number in range(ROUNDS):
        begin = number * STEP
        over = begin + int((late_ms + 12) * MS) if done else 0
        for rank in range(3):
            at = begin + (int(late_ms * MS) if rank == 1 else rank * 10_000)
            if rank == 1 or number >= missed:
                found.append(Arrival(1, -1, "ncclAllReduce", rank, 3, 100 + rank, at, 1024, over))
    return found


def lateness(arrivals: list[Arrival]) -> set[int]:
    """By how much the second rank came after the first, in milliseconds."""
    at = {(each.seq, each.rank): each.at_ns for each in arrivals}
    return {
        (ns - at[seq, 0]) // MS for (seq, rank), ns in at.items() if rank == 1 and (seq, 0) in at
    }  # fmt: skip


@pytest.mark.parametrize("late_ms", [2, 8, 14, 16])
@pytest.mark.parametrize("missed", [0, 1, 3])
def test_a_late_rank_is_late_and_not_early_in_the_next(late_ms: float, missed: int) -> None:
    """16 ms late in rounds of 30 ms, it comes 14 ms before the others come to the next one."""
    assert lateness(align(job(late_ms, missed))) == {late_ms}


def test_without_any_wait_the_nearest_counts() -> None:
    assert lateness(align(job(8, 2, done=False))) == {8}


def test_ranks_that_have_nothing_to_do_with_each_other_are_left_out() -> None:
    strangers = [each for each in job(8) if each.rank != 1]
    strangers += [Arrival(1, -1, "ncclAllReduce", 1, 3, 101, n * 7 * MS, 1024, 0) for n in range(20)]
    assert {each.rank for each in align(strangers)} == {0, 2}
