"""A collective that hangs across nodes: one finding, about the rank that never joined, on whichever node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingero.detectors.across import Across, judge_across
from ingero.model.clocks import Clocks
from ingero.model.facts import InFlight
from ingero.model.finding import Finding, Severity
from tests.facts import MS, SECOND
from tests.unit.detectors.nodes import NODES, RANKS, SLICES, START_NS, STEP_MS, Cluster, node_of, pid_of

SYNC = "cudaStreamSynchronize"
LAST = 100  # the collective somebody never joins
HUNG_S = SLICES * 2 - LAST * STEP_MS / 1000
AHEAD = {"gpu-node-02": 80.0, "gpu-node-03": -3_600_000.0}  # an hour behind


def hung(missing: tuple[int, ...] = (5,), only: tuple[int, ...] | None = None) -> Cluster:
    """All meet once a step; from collective 100 on everybody waits for those that are missing."""
    cluster = Cluster(offsets_ms=AHEAD, only=only, waits=False)
    for rank in cluster.ranks:
        node, pid = node_of(rank), pid_of(rank)
        facts = cluster.stories[node].facts
        most = LAST - 1 if rank in missing else LAST
        facts.arrivals = [each for each in facts.arrivals if each.rank != rank or each.seq <= most]
        if rank not in missing:
            began = cluster.own(node, START_NS + LAST * STEP_MS * MS + 20 * MS)
            facts.in_flight.append(InFlight(pid, pid, SYNC, began, facts.to_ns, "gpu_wait"))
    return cluster


def local(cluster: Cluster) -> dict[str, list[Finding]]:
    return {node: story.findings() for node, story in cluster.stories.items()}


def judged(cluster: Cluster) -> tuple[Across, dict[str, list[Finding]]]:
    said = local(cluster)
    return judge_across(cluster.timelines(), Clocks(), said), said


def hangs(found: Across) -> list[Finding]:
    return [each for each in found.findings if each.kind == "nccl-hang"]


@pytest.mark.parametrize("rank", [0, 5, 7])
def test_the_rank_that_never_joined_is_named_with_its_node(rank: int) -> None:
    found, said = judged(hung((rank,)))
    (only,) = hangs(found)
    who = f"rank {rank} on {node_of(rank)} never joined it"
    assert only.title == f"Collective {LAST} hangs: {who}, 7 ranks on 4 nodes wait in it"
    assert (only.severity, only.id.partition(":")[0]) == (Severity.CRITICAL, node_of(rank))
    assert only.victim.pid == pid_of(rank)
    assert f"rank {rank} on {node_of(rank)} (pid {pid_of(rank)}) last entered number {LAST - 1}" in str(
        only.causes
    )
    assert only.fix[0].text.startswith(f"On {node_of(rank)}, see where")
    for node in NODES:  # what nodes say of their waiting by themselves is that
        assert [each.kind for each in said[node]].count("nccl-hang") == 1
        assert all(found.covers(node, each) for each in said[node] if each.kind == "nccl-hang")


def test_a_node_whose_ranks_are_all_missing_says_nothing_itself_and_is_named() -> None:
    found, said = judged(hung((4, 5)))
    assert [each.kind for each in said["gpu-node-03"]].count("nccl-hang") == 0
    (only,) = hangs(found)
    assert "rank 4 on gpu-node-03, rank 5 on gpu-node-03 never joined it, 6 ranks on 3 nodes" in only.title


def test_a_collective_all_are_in_is_told_once() -> None:
    found, _ = judged(hung(()))
    assert [each.title for each in hangs(found)] == [
        f"Collective {LAST} hangs: all 8 ranks on 4 nodes are in it and it does not end"
    ]


def test_ranks_nobody_recorded_are_said_to_be_that() -> None:
    found, _ = judged(hung((), only=(0, 1, 2, 3, 4, 5)))
    assert [each.title for each in hangs(found)] == [
        f"Collective {LAST} hangs: 6 ranks on 3 nodes wait in it; not recorded: rank 6, 7"
    ]


def test_a_rank_that_ended_is_said_to_have() -> None:
    cluster = hung((5,))
    facts = cluster.stories["gpu-node-03"].facts
    facts.processes[pid_of(5)] = replace(facts.processes[pid_of(5)], end_ns=facts.to_ns - SECOND)
    (only,) = hangs(judged(cluster)[0])
    assert "and has ended" in str(only.causes)
    assert only.fix[0].text == "On gpu-node-03, see why rank 5 ended: its log, and the kernel's."


def test_a_rank_that_still_comes_is_late_and_no_hang() -> None:
    """It is some collectives behind, and entered the last one just before its node was last heard."""
    cluster = hung((5,))
    facts = cluster.stories["gpu-node-03"].facts
    facts.arrivals = [
        each._replace(at_ns=facts.to_ns - SECOND) if (each.rank, each.seq) == (5, LAST - 1) else each
        for each in facts.arrivals
    ]
    assert hangs(judged(cluster)[0]) == []


def test_jobs_that_go_on_are_quiet_and_so_is_what_no_node_calls_a_hang() -> None:
    assert judged(Cluster())[0].findings == []
    assert hangs(judge_across(hung().timelines(), Clocks(), {})) == []


def test_hangs_of_one_node_are_left_to_it() -> None:
    cluster = hung((1,), only=tuple(range(RANKS)))
    found, said = judged(cluster)
    assert hangs(found) == []
    assert [each.kind for each in said["gpu-node-01"]] == ["nccl-hang"]
    assert not found.covers("gpu-node-01", said["gpu-node-01"][0])
