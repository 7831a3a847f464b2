"""Ranks on several nodes: who is late, by how much, since when and why, whatever the clocks say."""

from __future__ import annotations

from random import Random

import pytest

from ingero.model.clocks import ClockOffset, Clocks
from ingero.model.finding import Effect, Finding
from tests.builders import cause, finding, unexplained
from tests.facts import MS, SECOND
from tests.unit.detectors.nodes import NODES, SHIPPER, START_NS, Cluster, pid_of

KIND = "nccl-straggler"
LATE, LATE_MS = 5, 41.0
APART = {"gpu-node-02": 80.0, "gpu-node-03": -33.0, "gpu-node-04": 12.0}


def always(_step: int, rank: int) -> float:
    return LATE_MS if rank == LATE else 0.0


def late_cluster(**more: object) -> Cluster:
    return Cluster(**({"late_ms": always, "offsets_ms": APART, "shipper_ms": {LATE: 38.0}} | more))  # type: ignore[arg-type]


def only(cluster: Cluster, known: Clocks | None = None) -> Finding:
    (found,) = cluster.judge(known).findings
    return found


def measured(offsets_ms: dict[str, float], error_ms: float) -> Clocks:
    return Clocks.of(
        ClockOffset(node, 0, int(offsets_ms.get(node, 0) * MS), int(error_ms * MS), "measured")
        for node in NODES
    )


def told_ms(found: Finding) -> float:
    return float(found.title.split(" arrives ")[1].split(" ms ")[0])


def test_one_finding_names_the_rank_its_node_the_lateness_and_the_local_cause() -> None:
    found = only(late_cluster())
    assert found.kind == KIND
    assert found.node == "gpu-node-03"
    assert found.victim.pid == pid_of(LATE)
    assert found.title == (
        "Rank 5 on gpu-node-03 arrives 41 ms late in every step;"
        f" there log-shipper (pid {SHIPPER}) has its cores: 38 ms of it"
    )
    assert found.causes[0].bucket == "runqueue"
    assert [who.comm for who in found.causes[0].who] == ["log-shipper"]
    assert sum(cause.share for cause in found.causes) == pytest.approx(1.0, abs=0.001)
    assert found.effect.wall_share == pytest.approx(0.41, abs=0.01)
    assert str(SHIPPER) in (found.fix[0].command or "")
    assert found.effect.now_ns == pytest.approx(100 * MS, rel=0.01)
    assert found.effect.usual_ns == pytest.approx(59 * MS, rel=0.01)


@pytest.mark.parametrize("seed", range(10))
def test_the_right_rank_is_late_by_the_right_time_whatever_the_clocks_and_the_noise(seed: int) -> None:
    random = Random(seed)
    rank, late_ms = random.randrange(8), random.uniform(8, 60)
    apart = {node: random.uniform(-80, 80) for node in NODES}
    cluster = Cluster(
        lambda _, each: late_ms if each == rank else 0.0,
        offsets_ms=apart,
        drift_ppm={node: random.uniform(-50, 50) for node in NODES},
        noise_ms=random.uniform(0, 2),
        seed=seed,
        shipper_ms={rank: late_ms * 0.9},
    )
    ((found,), (doubtful,)) = ([each] for each in (only(cluster), cluster.judge().not_watched))
    assert not doubtful
    assert found.title.startswith(f"Rank {rank} on {NODES[rank // 2]} arrives ")
    assert told_ms(found) == pytest.approx(late_ms, abs=2.0)
    assert found.causes[0].who[0].comm == "log-shipper"


@pytest.mark.parametrize("apart", [{}, APART])
def test_ranks_in_step_are_quiet_whatever_the_clocks_say(apart: dict[str, float]) -> None:
    found = Cluster(offsets_ms=apart).judge()
    assert found.findings == []
    assert found.not_watched == []


def test_ranks_that_take_turns_are_no_stragglers() -> None:
    assert Cluster(lambda step, rank: 30.0 if rank == step % 8 else 0.0).judge().findings == []


def test_a_lateness_that_began_amid_the_recording_says_since_when() -> None:
    found = only(late_cluster(late_ms=lambda step, rank: LATE_MS if rank == LATE and step >= 100 else 0.0))
    begun_ns = START_NS - 33 * MS + 100 * 100 * MS
    assert found.first_ns == pytest.approx(begun_ns, abs=200 * MS)
    assert " since " in found.title


def test_a_lateness_that_ended_covers_only_its_time() -> None:
    found = only(late_cluster(late_ms=lambda step, rank: LATE_MS if rank == LATE and step < 100 else 0.0))
    assert found.last_ns - found.first_ns == pytest.approx(10 * SECOND, rel=0.05)


def test_both_ranks_of_a_late_node_are_one_finding() -> None:
    found = only(Cluster(lambda _, rank: 30.0 if rank in (4, 5) else 0.0, shipper_ms={4: 28.0, 5: 28.0}))
    assert found.title.startswith("Ranks 4 and 5 on gpu-node-03 arrive 30")


def test_a_clock_that_drifts_while_they_meet_is_followed() -> None:
    """12 ms over the recording."""
    assert told_ms(only(late_cluster(drift_ppm={"gpu-node-03": 500.0}))) == pytest.approx(LATE_MS, abs=0.5)


def test_without_common_waits_and_measured_clocks_nobody_is_blamed_and_that_is_said() -> None:
    found = late_cluster(waits=False).judge()
    assert found.findings == []
    (said,) = found.not_watched
    assert "gpu-node-03" in said.what
    assert "clocks are apart is not known" in said.why


def test_measured_clocks_tell_where_nobody_waits() -> None:
    found = only(late_cluster(waits=False), measured(APART, 1.0))
    assert "Rank 5 on gpu-node-03 arrives 41" in found.title


def test_a_lateness_within_the_error_of_the_clocks_cannot_be_told() -> None:
    found = late_cluster(waits=False).judge(measured(APART, 30.0))
    assert found.findings == []
    (said,) = found.not_watched
    assert "gpu-node-03 seems to be 41" in said.why
    assert "known within 60 ms only" in said.why


def test_measured_clocks_overrule_ends_that_were_no_common_end() -> None:
    """The late rank has 41 ms more work for its GPU after each collective, so its waits end later, too."""
    cluster = late_cluster(offsets_ms={})
    marks = cluster.stories["gpu-node-03"].facts.marks

    def longer(pid: int, op: int):  # type: ignore[no-untyped-def]
        found = marks(pid, op).copy()
        found[:, 1] += int(LATE_MS * MS)
        return found

    cluster.stories["gpu-node-03"].facts.marks = longer
    found = only(cluster, measured({}, 0.5))
    assert "Rank 5 on gpu-node-03 arrives 41" in found.title


def test_ranks_that_were_not_all_recorded_prove_nothing_and_that_is_said() -> None:
    found = late_cluster(only=(0, 1, 2, 3, 4, 5, 6)).judge()
    assert found.findings == []
    assert [each.why for each in found.not_watched] == ["1 of its 8 ranks were not recorded"]


def test_a_late_host_whose_gpu_is_waited_for_as_long_costs_nothing() -> None:
    """All wait as long for the GPU: it has enough to do, and the host may come later."""
    cluster = Cluster(lambda _, rank: 3.0 if rank == LATE else 0.0)
    for story in cluster.stories.values():
        marks = story.facts.marks

        def all_alike(pid: int, op: int, marks=marks):  # type: ignore[no-untyped-def]
            found = marks(pid, op).copy()
            found[:, 1] = 40 * MS
            return found

        story.facts.marks = all_alike
    assert cluster.judge(measured({}, 0.1)).findings == []


def test_what_waiting_ranks_and_the_late_one_say_by_themselves_is_part_of_it() -> None:
    across = late_cluster(offsets_ms={}).judge()
    during = {"first_ns": START_NS + SECOND, "last_ns": START_NS + 9 * SECOND}
    assert across.covers("gpu-node-01", finding(kind="slowdown", pid=pid_of(0), **during))
    # It lost its core, too; but then it waited for the late one all the same.
    assert across.covers("gpu-node-01", finding(kind="cpu-contention", pid=pid_of(0), **during))
    assert across.covers("gpu-node-03", finding(kind="cpu-contention", pid=pid_of(LATE), **during))
    assert not across.covers(
        "gpu-node-03", finding(kind="disk-wait", pid=pid_of(LATE), causes=[cause("disk_wait")], **during)
    )
    assert not across.covers("gpu-node-01", finding(kind="cuda-error", pid=pid_of(0), **during))
    assert not across.covers("gpu-node-01", finding(kind="slowdown", pid=99, **during))
    later = {"first_ns": START_NS + 20 * SECOND, "last_ns": START_NS + 70 * SECOND}
    assert not across.covers("gpu-node-01", finding(kind="slowdown", pid=pid_of(0), **later))
    assert not across.covers("gpu-node-01", unexplained(pid=pid_of(0)))  # of another time


def test_a_finding_of_longer_is_part_of_it_where_the_late_one_explains_all_that_steps_grew() -> None:
    """For a third of a recording one rank is late; what another says of all of it may be nothing else."""
    across = late_cluster(late_ms=lambda step, rank: always(step, rank) * (step >= 170)).judge()
    (late,) = across.findings
    cost_ns = late.effect.excess_ns or 0
    whole = {"first_ns": START_NS, "last_ns": START_NS + 24 * SECOND, "pid": pid_of(0)}
    waited = Effect("step", 100 * MS, 120 * MS, int(cost_ns * 0.9), 0.1)
    more = Effect("step", 100 * MS, 200 * MS, cost_ns * 3, 0.5)
    assert across.covers("gpu-node-01", finding(kind="slowdown", effect=waited, **whole))
    assert not across.covers("gpu-node-01", finding(kind="slowdown", effect=more, **whole))
    assert not across.covers("gpu-node-01", finding(kind="cuda-error", effect=waited, **whole))
    assert not across.covers(
        "gpu-node-03", finding(kind="disk-wait", effect=waited, **(whole | {"pid": pid_of(LATE)}))
    )


@pytest.mark.parametrize("seed", range(4))
def test_agents_that_came_amid_the_job_find_the_same_collectives_of_each_other(seed: int) -> None:
    """No collective has a number, each agent came at another time, clocks are apart by more than a step."""
    random = Random(seed)
    cluster = late_cluster(
        met_at={node: random.randrange(30) for node in NODES},
        offsets_ms={node: random.uniform(-300, 300) for node in NODES},
        uneven_ms=5.0,
        seed=seed,
    )
    found = only(cluster)
    assert found.title.startswith("Rank 5 on gpu-node-03 arrives ")
    assert told_ms(found) == pytest.approx(LATE_MS, abs=1.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_split_that_one_node_calls_by_another_name_is_still_one(seed: int) -> None:
    """Where its making was seen it has our name and numbers; a node that came later has NCCL's, and none."""
    cluster = late_cluster(uneven_ms=5.0, seed=seed)
    facts = cluster.stories["gpu-node-02"].facts
    facts.unmatched += [each._replace(comm_hash=8, seq=-1) for each in facts.arrivals if each.seq >= 40]
    facts.arrivals.clear()
    found = only(cluster)
    assert found.title.startswith("Rank 5 on gpu-node-03 arrives ")
    assert abs(told_ms(found) - LATE_MS) < 2


def test_two_splits_that_could_both_be_meant_are_not_guessed_at() -> None:
    cluster = late_cluster(uneven_ms=5.0)
    facts = cluster.stories["gpu-node-02"].facts
    named = [[each._replace(comm_hash=comm, seq=-1) for each in facts.arrivals] for comm in (8, 9)]
    facts.unmatched += named[0] + named[1]
    facts.arrivals.clear()
    across = cluster.judge()
    assert across.findings == []
    assert any("ranks were not recorded" in each.why for each in across.not_watched)
