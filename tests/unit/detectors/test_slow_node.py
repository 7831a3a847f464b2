"""Jobs of one command on several nodes: the one that differs from its peers is found without collectives."""

from __future__ import annotations

import msgspec
import pytest

from ingero.detectors.across import judge_across
from ingero.model.clocks import Clocks
from ingero.model.finding import Finding
from tests.facts import Story, job

NODES = ("gpu-node-01", "gpu-node-02", "gpu-node-03", "gpu-node-04")
ODD = "gpu-node-02"
PID, HOG = 100, 300


def stories(
    steps: dict[str, int] | None = None,
    ms: dict[str, dict[str, float]] | None = None,
    command: str = "python train.py --node {}",
    ranks: bool = False,
    nodes: tuple[str, ...] = NODES,
) -> dict[str, Story]:
    """Two hundred steps in every slice unless said; `ms` of a slice's two seconds, by bucket."""
    made = {}
    for number, node in enumerate(nodes):
        story = Story(8)
        story.facts.node = node
        lost = (ms or {}).get(node, {})
        job(lost, pid=PID, story=story, steps=(steps or {}).get(node, 200))
        rank = {"rank": number, "world_size": len(nodes)} if ranks else {}
        story.process(PID, "python3", cmdline=command.format(node), **rank)
        if lost.get("runqueue"):
            story.process(HOG, "backup").culprit(HOG, "backup", lost["runqueue"])
        made[node] = story.paced()
    return made


def findings(made: dict[str, Story], local: dict[str, list[Finding]] | None = None) -> list[Finding]:
    timelines = {node: story.timeline() for node, story in made.items()}
    return judge_across(timelines, Clocks(), local).findings


def slow_one(**more: object) -> dict[str, Story]:
    return stories({ODD: 100}, {ODD: {"runqueue": 900.0}}, **more)  # type: ignore[arg-type]


def test_the_node_whose_steps_take_longer_is_named_with_its_own_cause() -> None:
    (found,) = findings(slow_one())
    assert found.node == ODD
    assert found.kind == "cpu-contention"
    assert "a step takes 20 ms on gpu-node-02, 10 ms on 3 peers on other nodes" in found.title
    assert "there backup (pid 300) has its cores: 9 ms of it" in found.title
    assert found.causes[0].who[0].comm == "backup"
    assert found.effect.usual_ns == pytest.approx(10_000_000, rel=0.01)
    assert found.effect.wall_share == pytest.approx(0.5, abs=0.01)
    assert sum(cause.share for cause in found.causes) == pytest.approx(1.0, abs=0.001)


def test_alike_nodes_are_quiet() -> None:
    assert findings(stories()) == []


def test_two_nodes_do_not_tell_which_of_them_is_the_odd_one() -> None:
    assert findings(slow_one(nodes=NODES[:2])) == []


def test_other_commands_are_no_peers() -> None:
    made = slow_one()
    for number, story in enumerate(made.values()):
        known = story.facts.processes[PID]
        story.process(PID, "python3", cmdline=f"python {'abcd'[number]}.py")
        assert known.cmdline != story.facts.processes[PID].cmdline
    assert findings(made) == []


def test_a_group_that_differs_by_as_much_in_itself_has_no_odd_one() -> None:
    assert findings(stories(dict(zip(NODES, (200, 170, 145, 120), strict=True)))) == []


def test_what_the_node_says_itself_is_told_once_and_compared() -> None:
    made = slow_one()
    (found,) = findings(made)
    local = msgspec.structs.replace(found, title="backup takes the CPU")
    (both,) = findings(made, {ODD: [local]})
    assert both.id == local.id
    assert both.title.startswith("backup takes the CPU; a step takes 20 ms on gpu-node-02")


def test_ranks_in_step_wait_for_the_one_that_hardly_waits() -> None:
    waiting = {node: {"net_wait": 900.0} for node in NODES if node != ODD}
    made = stories(ms=waiting | {ODD: {"runqueue": 880.0, "net_wait": 10.0}}, ranks=True)
    (found,) = findings(made)
    assert found.node == ODD
    assert "its 3 peers on other nodes wait 4.5 ms longer in every step, for gpu-node-02" in found.title
    assert found.causes[0].who[0].comm == "backup"


def test_jobs_that_do_not_work_together_do_not_wait_for_each_other() -> None:
    """They are as fast; what one loses, its GPU hides."""
    waiting = {node: {"net_wait": 900.0} for node in NODES if node != ODD}
    assert findings(stories(ms=waiting | {ODD: {"runqueue": 880.0}})) == []
