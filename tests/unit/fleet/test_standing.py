"""A node among its peers, while the collector answers, is away for a moment, and is away for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingero.fleet.collector import peers
from ingero.fleet.limits import ROUNDS, measured
from ingero.fleet.push.standing import AWAY_S, GOOD_S, OwnStanding
from ingero.model.fleet import ROUND_S, Advice
from ingero.serve.metrics.fleet import FleetExporter, FleetSender
from ingero.serve.metrics.otlp_destination import parse
from tests.unit.fleet.rounds import gpu, health, job, member

OWN = Advice("own-time", 0.2, 0.2, 0.3, 8, pid=100)
BUSY, IDLE = {"host_cpu": 9.0, "gpu_wait": 1.0}, {"host_cpu": 1.0, "gpu_wait": 9.0}


class Clock:
    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def rounds(standing: OwnStanding, clock: Clock, count: int, time_s: dict[str, float]) -> None:
    for _ in range(count):
        clock.s += ROUND_S
        standing.look(health(jobs=[job(time_s=time_s)]))


def test_what_the_collector_says_counts_as_long_as_it_answers(clock: Clock) -> None:
    standing = OwnStanding(clock)
    for _ in range(20):
        standing.told((OWN,))
        rounds(standing, clock, 1, BUSY)
        assert standing.advice == (OWN,)
        assert not standing.by_itself


def test_a_node_holds_itself_to_the_last_limit_while_the_collector_is_away(clock: Clock) -> None:
    standing = OwnStanding(clock)
    standing.told((OWN,))
    clock.s += AWAY_S - ROUND_S
    rounds(standing, clock, ROUNDS - 1, BUSY)
    assert standing.by_itself
    assert not standing.advice[0].straggles
    rounds(standing, clock, 1, BUSY)
    assert standing.advice[0].straggles
    assert standing.advice[0].value == pytest.approx(0.9)
    rounds(standing, clock, ROUNDS, IDLE)
    assert not standing.advice[0].straggles


def test_one_round_beyond_the_limit_is_not_straggling(clock: Clock) -> None:
    standing = OwnStanding(clock)
    standing.told((OWN,))
    clock.s += AWAY_S
    for time_s in (BUSY, IDLE) * 3:
        clock.s += 1
        standing.look(health(jobs=[job(time_s=time_s)]))
        assert not standing.advice[0].straggles


def test_old_advice_is_dropped_and_the_next_answer_counts_again(clock: Clock) -> None:
    standing = OwnStanding(clock)
    standing.told((Advice("clock", 1e9, 1.9e9, 1.7e9, 8, True, gpu=0),))
    clock.s += GOOD_S - 1
    assert standing.advice
    clock.s += 1
    assert standing.advice == ()
    assert not standing.by_itself
    standing.look(health())  # and nothing brings it back
    assert standing.advice == ()
    standing.told((OWN,))
    assert standing.advice == (OWN,)


def test_who_has_ended_does_not_straggle(clock: Clock) -> None:
    standing = OwnStanding(clock)
    standing.told((Advice("own-time", 0.9, 0.2, 0.3, 8, True, pid=7),))
    clock.s += AWAY_S
    standing.look(health())
    assert standing.advice == ()


@pytest.mark.parametrize("ranked", [True, False])
def test_a_node_measures_itself_as_the_collector_does(ranked: bool) -> None:
    """Else it would be held against a limit of something else."""
    more = {"rank": 3, "world_size": 8} if ranked else {"rank": None, "world_size": None}
    mine = health(jobs=[job(steps_per_s=9.0, usual_steps_per_s=12.0, **more)], gpus=[gpu()])
    same = {"steps_per_s": 9.0, "usual_steps_per_s": 12.0, "time_s": mine.jobs[0].time_s}
    others = [
        member(f"n{at}", at if ranked else None, world_size=more["world_size"], **same) for at in range(8)
    ]
    others += [member(f"g{at}", None, pid=None, gpu=0, busy_share=0.8, clock_hz=1.9e9) for at in range(8)]
    found = {each.measure: each.value for each in peers.standings(others)}
    assert set(found) == ({"own-time", "pace", "clock"} if ranked else {"pace", "clock"})
    for measure, value in found.items():
        pid, number = (None, 0) if measure == "clock" else (100, None)
        assert measured(mine, measure, pid, number) == pytest.approx(value), measure


def test_a_warning_of_the_fleet_goes_when_the_collector_stays_away(tmp_path: Path, clock: Clock) -> None:
    sender = FleetSender(parse("http://127.0.0.1:1", "--fleet"), tmp_path / "s", "c1", now_s=clock)
    exporter = FleetExporter(sender)
    sender.standing.told((Advice("pace", 7.0, 10.0, 9.0, 8, True, pid=7),))
    assert exporter.warnings() == ("the fleet: process 7 straggles: pace 7, 10 with its 7 peers (limit 9)",)
    clock.s += AWAY_S
    assert exporter.warnings()[0].startswith("the fleet, by what it said last: process 7 straggles")
    clock.s += GOOD_S
    assert exporter.warnings() == ()
