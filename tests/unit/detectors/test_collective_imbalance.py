"""Collective imbalance: ranks wait in turns, and no one is at fault."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.unit.detectors.rounds import PIDS, meet, ranks

KIND = "collective-imbalance"


def turns(ms: float):
    """Each rank is last in every fourth round, and then by so much."""
    return meet(ranks(), lambda seq, rank: ms if rank == seq % 4 else 0)


def test_ranks_that_wait_in_turns_are_uneven_and_nobody_is_blamed() -> None:
    (finding,) = turns(4).findings()
    assert finding.kind == KIND
    assert finding.victim.pid in PIDS
    assert finding.causes[0].who == []
    assert finding.causes[0].bucket == "gpu_wait"
    assert finding.effect.wall_share == pytest.approx(0.3, abs=0.001)  # three of four rounds of 4 ms in 10


# Uneven batches are normal: it speaks from a tenth of the time on.
@pytest.mark.parametrize(
    ("ms", "severity"),
    [(1.2, None), (1.4, Severity.MEDIUM), (3.5, Severity.HIGH), (7.0, Severity.CRITICAL)],
)
def test_severity_follows_the_share_of_time_waited(ms: float, severity: Severity | None) -> None:
    assert turns(ms).severity(KIND) is severity


def test_the_waiting_can_be_won() -> None:
    (finding,) = turns(4).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_one_rank_that_is_always_last_is_a_straggler() -> None:
    story = meet(ranks(busy=1), lambda _, rank: 4 if rank == 1 else 0)
    assert [each.kind for each in story.findings() if each.victim.pid != PIDS[1]] == ["nccl-straggler"]
    assert KIND not in story.kinds()


def test_ranks_in_step_are_quiet() -> None:
    assert turns(0.1).kinds() == []


def test_ranks_that_feed_nothing_here_do_not_break_it() -> None:
    story = meet(ranks(), lambda seq, rank: 4 if rank == seq % 4 else 0)
    story.rows["threads"] = []
    assert story.kinds() == []


@pytest.mark.parametrize("source", ["calls", "nccl"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert turns(4).abstains(KIND, source)
