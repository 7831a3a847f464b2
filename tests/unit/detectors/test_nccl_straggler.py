"""NCCL straggler: the rank that all wait for."""

from __future__ import annotations

import pytest

from ingero.model.finding import Finding, Severity
from tests.facts import Story, job
from tests.unit.detectors.rounds import PIDS, meet, ranks

KIND = "nccl-straggler"
LATE = 2


def straggling(ms: float, story: Story | None = None) -> Story:
    return meet(story or ranks(busy=LATE), lambda _, rank: ms if rank == LATE else 0)


def about_others(story: Story) -> list[Finding]:
    """What makes the late rank late is another finding, about itself."""
    return [each for each in story.findings() if each.victim.pid != PIDS[LATE]]


def test_the_rank_that_is_always_last_is_named() -> None:
    (finding,) = about_others(straggling(3))
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
    found = [(each.kind, each.severity) for each in about_others(straggling(ms))]
    assert found == ([(KIND, severity)] if severity else [])


def test_all_the_waiting_can_be_won() -> None:
    (finding,) = about_others(straggling(3))
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_what_makes_the_late_rank_late_is_told_about_that_rank() -> None:
    story = straggling(3)
    assert [each.kind for each in story.findings() if each.victim.pid == PIDS[LATE]] == ["data-starvation"]


def test_the_late_rank_that_itself_waits_for_the_gpu_is_no_straggler() -> None:
    """Hosts enqueue early or late; the GPUs meet at the same time and all hosts wait for them."""
    assert straggling(3, ranks()).kinds() == []


def test_no_more_is_lost_than_the_others_wait_longer_for_the_gpu() -> None:
    """3 of every 10 ms late, 600 ms of a slice; but it waits only 400 ms less for its GPU."""
    story = ranks()
    story.rows["threads"] = [row for row in story.rows["threads"] if row["pid"] != PIDS[LATE]]
    job({"sleep": 400.0}, pid=PIDS[LATE], story=story)
    (finding,) = straggling(3, story).findings()
    assert finding.kind == KIND
    assert finding.effect.wall_share == pytest.approx(0.2, abs=0.001)


def test_ranks_that_take_turns_are_no_stragglers() -> None:
    story = meet(ranks(), lambda seq, rank: 3 if rank == seq % 4 else 0)
    assert KIND not in story.kinds()


def test_ranks_that_were_not_all_seen_prove_nothing() -> None:
    story = straggling(3)
    story.facts.arrivals = [each for each in story.facts.arrivals if each.rank != 0]
    assert about_others(story) == []


def test_a_single_rank_waits_for_nobody() -> None:
    assert meet(ranks(pids=(100,)), lambda _, rank: 3, pids=(100,)).kinds() == []


def test_ranks_in_step_are_quiet() -> None:
    assert meet(ranks(), lambda _, rank: rank * 0.01).kinds() == []


@pytest.mark.parametrize("source", ["calls", "nccl"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert straggling(3).abstains(KIND, source)
