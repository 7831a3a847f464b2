"""A job of eight ranks on four nodes with four clocks and addresses: real agents find the rank all wait for.

`make bench-across` plays twenty of these and more kinds of faults.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.across.run import told_ms, wrong
from benchmarks.across.stage import Stage, drawn
from tests import namespaces
from tests.conftest import require

SEED = 6
WITHIN_MS = 3.0


@pytest.fixture(autouse=True, scope="module")
def possible() -> None:
    require("ebpf", namespaces.missing())


def test_the_late_rank_its_node_and_its_own_cause_are_told_once(tmp_path: Path) -> None:
    play = drawn(SEED, "sleeps")
    stage = Stage(tmp_path, play)
    answer = stage.run()
    found = [each for each in answer["findings"] if each["kind"] == "nccl-straggler"]
    assert len(found) == 1, answer["findings"]
    (only,) = found
    assert only["title"].startswith(f"Rank {play.rank} on {play.node} arrives ")
    assert only["id"].startswith(f"{play.node}:")
    told = told_ms(only["title"])
    assert told is not None
    assert abs(told - stage.late_ms()) <= WITHIN_MS
    assert only["causes"][0]["bucket"] == "sleep"
    assert only["source"]["function"] == "Rank._prepare"
    merged = [each["id"] for each in stage.of_merged()["findings"]]
    assert merged == [each["id"] for each in answer["findings"]]


@pytest.mark.long
def test_ranks_in_step_are_quiet_however_far_their_clocks_are_apart(tmp_path: Path) -> None:
    """Nothing is found, save that others have their cores where the kernel says so, too."""
    play = drawn(SEED, "")
    stage = Stage(tmp_path, play)
    answer = stage.run()
    assert wrong(play, answer, stage.late_ms(), stage.waited_share()) == []


@pytest.mark.long
def test_the_rank_that_is_gone_is_named_with_its_node_by_what_all_nodes_recorded(tmp_path: Path) -> None:
    """It ends amid the job; seven others wait for it until somebody kills them."""
    play = drawn(SEED, "gone")
    answer = Stage(tmp_path, play).run()
    found = [each for each in answer["findings"] if each["kind"] == "nccl-hang"]
    assert len(found) == 1, [each["title"] for each in answer["findings"]]
    (only,) = found
    assert f"rank {play.rank} on {play.node} never joined it, 7 ranks on 4 nodes" in only["title"]
    assert "and has ended" in str(only["causes"])
    assert only["id"].startswith(f"{play.node}:")
