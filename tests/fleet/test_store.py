"""What the store keeps: one copy of each batch, the last word about a finding, the last round of a node."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from ingero.errors import StoreError
from ingero.fleet.collector import questions, status
from ingero.fleet.collector.store import Store
from ingero.fleet.collector.tables import Rows, rows_of
from ingero.fleet.collector.watch import Watch
from ingero.fleet.limits import ROUNDS
from ingero.model.fleet import Health, NodeStatus
from tests.unit.fleet.rounds import finding, gpu, health, job

S = 10**9


def put(store: Store, *batches: Health, signal: str = "metrics", received_ns: int | None = None) -> None:
    rows: Rows = {}
    rows_of(batches, signal, received_ns or time.time_ns(), rows)
    store.insert(rows)


def fresh(node: str = "n1", number: int = 1, **more: Any) -> Health:
    now_ns = time.time_ns() - S
    return health(node, number, **({"at_ns": now_ns, "from_ns": now_ns - 10 * S} | more))


def statuses(store: Store) -> dict[str, NodeStatus]:
    return {each.node: each for each in status.everybody(store, time.time_ns(), [])}


def counted(store: Store, table: str) -> int:
    return int(store.ask(f"SELECT count() AS n FROM ${table} FINAL")[0]["n"])


def test_a_batch_stored_three_times_is_there_once(store: Store) -> None:
    told = [fresh("n1"), fresh("n1", 2, jobs=[job(1), job(2)])]
    for _ in range(3):
        put(store, *told)
    assert (counted(store, "node_rounds"), counted(store, "job_rounds"), counted(store, "gpu_rounds")) == (
        2,
        3,
        2,
    )
    found = statuses(store)["n1"]
    assert (found.jobs, found.gpus) == (2, 1)


def test_values_come_back_as_they_were_told(store: Store) -> None:
    put(store, fresh(gpus=[gpu(0, busy_share=0.5), gpu(1, busy_share=1.0, memory_used_bytes=126 << 30)]))
    found = statuses(store)["n1"]
    assert found.state == "fine"
    assert found.gpu_busy_share == 0.75
    assert found.memory_share == 0.9
    assert found.pace_share == pytest.approx(0.9)
    assert (found.job_names, found.namespaces, found.models) == (["slurm-7"], ["ml"], ["H200"])
    assert found.lost_events == 0


def test_what_was_not_told_is_unknown(store: Store) -> None:
    put(
        store,
        fresh(jobs=[job(steps_per_s=None)], gpus=[gpu(busy_share=None, memory_bytes=None)], lost_events=None),
    )
    found = statuses(store)["n1"]
    assert (found.pace_share, found.gpu_busy_share, found.memory_share, found.lost_events) == (None,) * 4


def test_only_the_jobs_of_the_last_round_count(store: Store) -> None:
    now_ns = time.time_ns()
    put(
        store,
        fresh(jobs=[job(1), job(2)], at_ns=now_ns - 20 * S),
        fresh(number=2, jobs=[job(1)], at_ns=now_ns),
    )
    assert statuses(store)["n1"].jobs == 1


def test_rounds_that_waited_on_disk_do_not_look_like_now(store: Store) -> None:
    now_ns = time.time_ns()
    put(store, fresh(number=9, at_ns=now_ns, jobs=[job()]))
    put(store, fresh(number=2, at_ns=now_ns - 300 * S, jobs=[job(1), job(2), job(3)]))
    assert statuses(store)["n1"].jobs == 1


def test_a_node_not_heard_of_is_silent_and_stays_listed(store: Store) -> None:
    put(store, fresh("gone"), received_ns=time.time_ns() - 120 * S)
    put(store, fresh("here"))
    found = status.everybody(store, time.time_ns(), [])
    assert [(each.node, each.state) for each in found] == [("gone", "silent"), ("here", "fine")]


def test_a_node_whose_clock_is_off_is_heard_all_the_same(store: Store) -> None:
    put(
        store, fresh("behind", at_ns=time.time_ns() - 200 * S), fresh("ahead", at_ns=time.time_ns() + 200 * S)
    )
    assert {each.state for each in statuses(store).values()} == {"fine"}
    assert all(each.jobs == 1 for each in statuses(store).values())


def test_the_last_word_about_a_finding_wins_in_whatever_order_it_comes(store: Store) -> None:
    now_ns = time.time_ns()
    begun = fresh(at_ns=now_ns - 20 * S, findings=[finding(severity="LOW"), finding(id="other")])
    ended = fresh(at_ns=now_ns, findings=[finding(severity="HIGH", ended=True)])
    put(store, fresh())
    put(store, ended, signal="logs")
    put(store, begun, signal="logs")
    put(store, begun, signal="logs")
    found = statuses(store)["n1"]
    assert [(each.id, each.severity) for each in found.findings] == [("other", "HIGH")]
    assert found.state == "high"


@pytest.mark.parametrize("off_s", [-3600, 3600])
def test_of_a_node_whose_clock_is_off_by_an_hour_nothing_is_known_and_that_is_said(
    store: Store, off_s: int
) -> None:
    then_ns = time.time_ns() + off_s * S
    put(store, fresh("n1", at_ns=then_ns), fresh("n2"))
    put(store, fresh(at_ns=then_ns, findings=[finding(severity="CRITICAL")]), signal="logs")
    found = statuses(store)
    assert (found["n1"].state, found["n1"].other_time_ns) == ("silent", then_ns)
    assert (found["n2"].state, found["n2"].other_time_ns) == ("fine", None)
    put(store, fresh("n1", 2))  # it was mended, or has caught up
    assert statuses(store)["n1"].other_time_ns is None


@pytest.mark.parametrize("off_s", [-590, -301, 301, 590])
def test_findings_are_by_the_clock_of_their_node_as_rounds_are(store: Store, off_s: int) -> None:
    now_ns = time.time_ns() + off_s * S
    put(store, fresh(at_ns=now_ns))
    put(store, fresh(at_ns=now_ns - 60 * S, findings=[finding(severity="HIGH")]), signal="logs")
    over = fresh(at_ns=now_ns - questions.LASTS_NS - S, findings=[finding(id="x", severity="CRITICAL")])
    put(store, over, signal="logs")
    assert statuses(store)["n1"].state == "high"


def test_a_finding_nobody_repeats_is_over(store: Store) -> None:
    put(store, fresh())
    put(store, fresh(at_ns=time.time_ns() - questions.LASTS_NS - 2 * S, findings=[finding()]), signal="logs")
    assert statuses(store)["n1"].state == "fine"


def test_worst_comes_first_and_filters_choose(store: Store) -> None:
    put(store, fresh("a"), fresh("b", cluster="c2", jobs=[job(namespace="prod", job="")]), fresh("c"))
    put(store, fresh("c", findings=[finding(severity="CRITICAL", kind="nccl-hang")]), signal="logs")
    put(store, fresh("b", cluster="c2", findings=[finding(severity="LOW")]), signal="logs")
    nodes = status.everybody(store, time.time_ns(), [])

    def chosen(**filters: Any) -> list[str]:
        return [each.node for each in status.filtered(nodes, status.Filters(**filters), 0).nodes]

    assert chosen() == ["c", "b", "a"]
    assert chosen(cluster="c2") == chosen(namespace="prod") == chosen(job="python") == ["b"]
    assert chosen(finding="nccl-hang") == chosen(state="critical") == ["c"]
    assert chosen(node="a") == ["a"]
    whole = status.filtered(nodes, status.Filters(limit=1), 0)
    assert (len(whole.nodes), whole.left_out, whole.total) == (1, 2, 3)
    assert whole.states["critical"] == 1
    assert whole.clusters == ["c1", "c2"]


def slow_rank(store: Store, number: int, slow: int) -> None:
    waits, own = {"gpu_wait": 8.0, "host_cpu": 2.0}, {"gpu_wait": 1.0, "runqueue": 6.0, "host_cpu": 3.0}
    ranks = [
        fresh(f"n{rank}", number, jobs=[job(rank=rank, time_s=own if rank == slow else waits)])
        for rank in range(8)
    ]
    put(store, *ranks)


def test_the_straggler_is_named_with_its_cause_and_told_so_itself(store: Store) -> None:
    put(store, fresh("n5", findings=[finding()]), signal="logs")
    watch = Watch(store)
    for number in range(1, ROUNDS + 2):
        slow_rank(store, number, 5)
        watch.look()
    worst = watch.nodes[0]
    assert (worst.node, worst.state) == ("n5", "straggling")
    assert worst.straggling[0].cause == "cpu-contention: waited 38 ms for a core"
    assert [each.state for each in watch.nodes[1:]] == ["fine"] * 7  # who waits is no straggler
    told = {each.measure: each for each in watch.advice["c1", "n5"]}
    assert told["own-time"].straggles
    assert not told["pace"].straggles
    again = Watch(store)  # a collector that starts again goes on where it was
    again.look()
    assert again.nodes[0].straggling[0].since_ns == worst.straggling[0].since_ns
    for number in range(10, 10 + ROUNDS):
        slow_rank(store, number, slow=-1)
        again.look()
    assert [each.state for each in again.nodes if each.node == "n5"] == ["high"]  # its finding lasts
    assert list(questions.straggling(store)) == []


def test_collectors_beside_each_other_leave_no_straggler_behind(store: Store) -> None:
    """Each saw it begin at a moment of its own; the one that is left says that it is over."""
    first, second = Watch(store), Watch(store)
    for number in range(1, ROUNDS + 2):
        slow_rank(store, number, 5)
        first.look()
        second.look()
    assert len({first.nodes[0].straggling[0].since_ns, second.nodes[0].straggling[0].since_ns}) == 2
    assert len(list(questions.straggling(store))) == 1
    for number in range(10, 10 + ROUNDS):
        slow_rank(store, number, slow=-1)
        first.look()
    assert list(questions.straggling(store)) == []
    assert Watch(store)._known == {}


def test_rounds_that_nodes_gave_up_are_counted_once_and_over_restarts(store: Store) -> None:
    watch = Watch(store)
    told = [("n1", 5), ("n1", 7), ("n2", 100), ("n1", 7), ("n1", 2)]  # n1's agent starts again at last
    for number, (node, dropped) in enumerate(told, 1):
        put(store, fresh(node, number, dropped_rounds=dropped, at_ns=time.time_ns()))
        watch.look()
    assert watch.rounds_dropped == 2 + 2


def test_the_statements_of_a_cluster_are_understood_by_the_engine(store: Store) -> None:
    """There is no cluster here: their grammar is what can be checked."""
    from ingero.fleet.collector.tables import statements

    for each in statements("fleet", 14, "main"):
        assert store.ask(f"EXPLAIN AST {each.replace('$', '')}")


def test_what_may_be_told_at_most_can_be_kept(store: Store) -> None:
    """The bounds of otlp.py are those of the tables."""
    from ingero.fleet.collector.otlp import AHEAD_NS, BEHIND_NS, MOST_NS, WHOLE

    most = fresh(
        lost_events=MOST_NS - 1, dropped_rounds=MOST_NS - 1, targets=WHOLE["targets"] - 1,
        jobs=[job((1 << 31) - 1, rank=(1 << 31) - 1)], gpus=[gpu((1 << 16) - 1, memory_bytes=MOST_NS - 1)],
        cores_share=-float(MOST_NS),
    )  # fmt: skip
    days = range(-BEHIND_NS, AHEAD_NS, 86_400 * S)
    put(store, most, *(fresh(f"d{at}", at_ns=time.time_ns() + at) for at in days))
    told = fresh(findings=[finding(pid=(1 << 32) - 1, confidence=float(MOST_NS), opened_ns=1, first_ns=1)])
    put(store, told, signal="logs")
    assert statuses(store)["n1"].lost_events == MOST_NS - 1


def test_a_question_that_fails_says_so(store: Store) -> None:
    with pytest.raises(StoreError, match="chdb"):
        store.ask("SELECT nothing FROM $nowhere")
    with pytest.raises(StoreError, match="cannot write"):
        store.insert({"node_rounds": [("not", "a row")]})
    with pytest.raises(StoreError, match="cannot write"):
        put(store, fresh(gpus=[gpu(1 << 20)]))  # whatever the driver makes of a number that does not fit


def test_who_straggles_is_kept_though_the_store_fails_for_a_moment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(store)

    def full(rows: Rows) -> None:
        raise StoreError("the disk is full")

    for number in range(1, ROUNDS + 1):
        slow_rank(store, number, 5)
        with monkeypatch.context() as failing:
            if number == ROUNDS:
                failing.setattr(store, "insert", full)
                with pytest.raises(StoreError):
                    watch.look()
            else:
                watch.look()
    assert list(questions.straggling(store)) == []
    watch.look()
    assert [each.node for _, each in questions.straggling(store)] == ["n5"]


def test_many_who_ask_first_wait_for_one_look(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, fresh())
    watch, looks = Watch(store), []
    members = questions.members

    def counted_members(*of: Any) -> Any:
        looks.append(of)
        return members(*of)

    monkeypatch.setattr(questions, "members", counted_members)
    threads = [threading.Thread(target=watch.look_first) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert (len(looks), len(watch.nodes)) == (1, 1)


def test_a_round_that_is_seen_has_its_jobs_and_gpus(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks between the inserts of one batch sees the round before it, whole."""
    put(store, fresh("n1", 1))
    insert = store._insert
    seen: list[tuple[int, int]] = []

    def looked_between(table: str, rows: list[tuple[Any, ...]]) -> None:
        insert(table, rows)
        found = statuses(store)["n1"]
        seen.append((found.jobs, found.gpus))

    monkeypatch.setattr(store, "_insert", looked_between)
    put(store, fresh("n1", 2, jobs=[job(1), job(2)], gpus=[gpu(0), gpu(1)]))
    assert seen == [(1, 1), (1, 1), (2, 2)]
