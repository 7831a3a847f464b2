"""NCCL straggler: the rank that all wait for."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.unit.detectors.rounds import PIDS, meet, ranks

KIND = "nccl-straggler"
LATE = 2


def straggling(ms: float) -> list[tuple[str, Severity]]:
    story = meet(ranks(busy=LATE), lambda _, rank: ms if rank == LATE else 0)
    return [(each.kind, each.severity) for each in story.findings()]


def test_the_rank_that_is_always_last_is_named() -> None:
    (finding,) = meet(ranks(busy=LATE), lambda _, rank: 3 if rank == LATE else 0).findings()
    assert finding.kind == KIND
    assert f"rank {LATE} was last in 2400 of 2400" in finding.title
    assert [who.pid for who in finding.causes[0].who] == [PIDS[LATE]]
    assert finding.victim.pid != PIDS[LATE]
    assert finding.effect.wall_share == pytest.approx(0.3, abs=0.001)
    assert str(PIDS[LATE]) in (finding.fix[0].command or "")


# One round every 10 ms: a millisecond of waiting in each is a tenth of the time.
@pytest.mark.parametrize(
    ("ms", "severity"),
    [
        (0.25, None),
        (0.35, Severity.LOW),
        (1.05, Severity.MEDIUM),
        (2.6, Severity.HIGH),
        (5.1, Severity.CRITICAL),
    ],
)
def test_severity_follows_the_share_of_time_waited(ms: float, severity: Severity | None) -> None:
    assert straggling(ms) == ([(KIND, severity)] if severity else [])


def test_all_the_waiting_can_be_won() -> None:
    (finding,) = meet(ranks(busy=LATE), lambda _, rank: 3 if rank == LATE else 0).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_ranks_that_take_turns_are_no_stragglers() -> None:
    story = meet(ranks(), lambda seq, rank: 3 if rank == seq % 4 else 0)
    assert KIND not in story.kinds()


def test_ranks_that_were_not_all_seen_prove_nothing() -> None:
    story = meet(ranks(busy=LATE), lambda _, rank: 3 if rank == LATE else 0)
    story.facts.arrivals = [each for each in story.facts.arrivals if each.rank != 0]
    assert story.kinds() == []


def test_a_single_rank_waits_for_nobody() -> None:
    assert meet(ranks(pids=(100,)), lambda _, rank: 3, pids=(100,)).kinds() == []


def test_ranks_in_step_are_quiet() -> None:
    assert meet(ranks(), lambda _, rank: rank * 0.01).kinds() == []


@pytest.mark.parametrize("source", ["calls", "nccl"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert meet(ranks(busy=LATE), lambda _, rank: 3 if rank == LATE else 0).abstains(KIND, source)
