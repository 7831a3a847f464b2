"""Waits are followed to whoever is really slow, and no further than is known."""

from __future__ import annotations

import pytest

from ingero.correlate.loss import MAX_DEPTH, Chains, Root
from ingero.model.layout import Bucket, WakerKind
from tests.facts import JOB, MS, WORKER, Story

PINNER = 101


def follow(story: Story, tid: int = JOB, bucket: Bucket = Bucket.PEER_WAIT) -> list[Root]:
    return Chains(story.timeline().tables).follow(0, JOB, tid, bucket)


def shares(roots: list[Root]) -> dict[tuple[int, str], float]:
    found: dict[tuple[int, str], float] = {}
    for root in roots:
        key = (root.tid, root.bucket)
        found[key] = found.get(key, 0.0) + root.share
    return found


def waiting() -> Story:
    return Story(1).process(JOB, "python3").thread(JOB, "python3", {}, feeder=True, rest="peer_wait")


def test_a_wait_is_followed_over_the_queue_thread_and_the_worker_to_the_disk() -> None:
    story = waiting().process(WORKER, "loader", parent=JOB)
    story.thread(JOB, "pin_memory", {"host_cpu": 200.0}, tid=PINNER, rest="peer_wait")
    story.thread(WORKER, "loader", {"host_cpu": 500.0}, rest="disk_wait")
    story.waker(PINNER, "pin_memory", "peer_wait", 1500, by_pid=JOB)
    story.waker(WORKER, "loader", "peer_wait", 1800, of=PINNER)
    roots = follow(story)
    assert shares(roots) == pytest.approx(
        {(PINNER, "host_cpu"): 0.1, (WORKER, "host_cpu"): 0.9 * 0.25, (WORKER, "disk_wait"): 0.9 * 0.75}
    )
    assert {root.via for root in roots if root.tid == WORKER} == {("pin_memory", "loader")}
    assert sum(root.share for root in roots) == pytest.approx(1)


def test_several_workers_share_the_blame_by_how_long_we_waited_for_each() -> None:
    story = (
        waiting().thread(WORKER, "loader", {}, rest="host_cpu").thread(201, "loader", {}, rest="disk_wait")
    )
    story.waker(WORKER, "loader", "peer_wait", 500).waker(201, "loader", "peer_wait", 1500)
    assert shares(follow(story)) == pytest.approx({(WORKER, "host_cpu"): 0.25, (201, "disk_wait"): 0.75})


def test_each_of_many_workers_is_followed_however_small_its_part() -> None:
    story = waiting()
    for tid in range(500, 596):
        story.thread(tid, "loader", {}, rest="disk_wait").waker(tid, "loader", "peer_wait", 15)
    roots = follow(story)
    assert len(roots) == 96
    assert {root.bucket for root in roots} == {"disk_wait"}


def test_a_thread_nobody_traces_is_told_as_unknown() -> None:
    (root,) = follow(waiting().waker(777, "redis", "peer_wait", 1500))
    assert (root.seen, root.tid, root.comm, root.bucket) == (False, 777, "redis", "peer_wait")
    assert root.share == pytest.approx(1)


def test_a_worker_that_waits_for_its_master_to_ask_is_not_slow_by_that() -> None:
    story = waiting().process(WORKER, "loader", parent=JOB)
    story.thread(WORKER, "loader", {"host_cpu": 300.0}, rest="peer_wait")
    story.waker(WORKER, "loader", "peer_wait", 1500).waker(JOB, "python3", "peer_wait", 1700, of=WORKER)
    assert shares(follow(story)) == pytest.approx({(WORKER, "host_cpu"): 1.0})


def test_a_queue_thread_of_the_job_that_waits_for_another_of_its_threads_is_followed() -> None:
    story = waiting().thread(JOB, "queue", {}, tid=PINNER, rest="lock_wait")
    story.thread(JOB, "decode", {}, tid=102, rest="host_cpu")
    story.waker(PINNER, "queue", "peer_wait", 1500, by_pid=JOB)
    story.waker(102, "decode", "lock_wait", 1500, of=PINNER, by_pid=JOB)
    assert shares(follow(story)) == pytest.approx({(102, "host_cpu"): 1.0})


def test_threads_that_wait_for_each_other_end_the_chase() -> None:
    story = waiting().thread(201, "a", {"host_cpu": 100.0}, rest="peer_wait")
    story.thread(202, "b", {"disk_wait": 100.0}, rest="peer_wait")
    story.waker(201, "a", "peer_wait", 1000)
    story.waker(202, "b", "peer_wait", 1000, of=201).waker(201, "a", "peer_wait", 1000, of=202)
    roots = follow(story)
    assert {root.tid for root in roots} == {201, 202}
    assert sum(root.share for root in roots) == pytest.approx(1)


def test_only_mutual_waits_are_no_cause_at_all() -> None:
    story = waiting().thread(201, "a", {}, rest="peer_wait").thread(202, "b", {}, rest="peer_wait")
    story.waker(201, "a", "peer_wait", 1000)
    story.waker(202, "b", "peer_wait", 1000, of=201).waker(201, "a", "peer_wait", 1000, of=202)
    assert follow(story) == []


def test_a_thread_that_woke_itself_is_no_cause() -> None:
    assert follow(waiting().waker(JOB, "python3", "peer_wait", 1500)) == []


def test_a_very_long_chain_ends_as_unknown() -> None:
    story, last = waiting(), JOB
    for tid in range(500, 520):
        story.thread(tid, f"relay{tid}", {}, rest="peer_wait").waker(
            tid, f"relay{tid}", "peer_wait", 1500, of=last
        )
        last = tid
    (root,) = follow(story)
    assert not root.seen
    assert len(root.via) <= MAX_DEPTH + 1


def test_a_wide_and_deep_net_of_waits_ends() -> None:
    """24 threads, each woken by all others: there are more ways than anybody could follow."""
    story = waiting()
    tids = range(500, 524)
    for tid in tids:
        story.thread(tid, "mesh", {"host_cpu": 100.0}, rest="peer_wait").waker(tid, "mesh", "peer_wait", 200)
        for other in tids:
            if other != tid:
                story.waker(other, "mesh", "peer_wait", 200, of=tid)
    assert sum(root.share for root in follow(story)) == pytest.approx(1)


@pytest.mark.parametrize("kind", [WakerKind.WAKER_IRQ_BLOCK, WakerKind.WAKER_IRQ_OTHER, WakerKind.WAKER_NONE])
def test_a_wait_of_which_nobody_knows_who_ended_it_leads_to_nobody(kind: WakerKind) -> None:
    assert follow(waiting().waker(WORKER, "loader", "peer_wait", 1500, kind=kind)) == []


@pytest.mark.parametrize("kind", [WakerKind.WAKER_IRQ_TIMER, WakerKind.WAKER_IRQ_NET])
def test_what_the_clock_or_the_network_ended_is_no_matter_of_other_threads(kind: WakerKind) -> None:
    story = waiting().thread(WORKER, "loader", {}, rest="host_cpu")
    story.waker(WORKER, "loader", "peer_wait", 100).waker(0, "", "peer_wait", 1500, kind=kind)
    found = {(root.tid, root.bucket, root.ended_by): root.share for root in follow(story)}
    assert found == pytest.approx(
        {(WORKER, "host_cpu", WakerKind.WAKER_TASK): 1 / 16, (JOB, "peer_wait", kind): 15 / 16}
    )


def test_who_waits_for_the_interpreters_lock_looks_by_the_clock_whether_it_is_free() -> None:
    story = waiting().thread(WORKER, "loader", {}, rest="host_cpu")
    story.waker(WORKER, "loader", "lock_wait", 100)
    story.waker(0, "", "lock_wait", 1500, kind=WakerKind.WAKER_IRQ_TIMER)
    chains = Chains(story.timeline().tables)
    found = chains.follow(0, JOB, JOB, Bucket.LOCK_WAIT, gil_ns=1500 * MS)
    assert shares(found) == pytest.approx({(WORKER, "host_cpu"): 1})


def test_wakers_of_another_kind_of_wait_are_not_asked() -> None:
    story = waiting().thread(WORKER, "loader", {}, rest="host_cpu")
    assert follow(story.waker(WORKER, "loader", "lock_wait", 1500)) == []


def test_a_waker_of_hardly_any_of_it_is_not_followed() -> None:
    story = waiting().thread(WORKER, "loader", {}, rest="host_cpu").thread(201, "cron", {}, rest="disk_wait")
    story.waker(WORKER, "loader", "peer_wait", 1999).waker(201, "cron", "peer_wait", 1)
    assert {root.tid for root in follow(story)} == {WORKER}


def test_a_wait_nobody_is_known_to_have_ended_leads_nowhere() -> None:
    assert follow(waiting()) == []


def test_waits_of_no_length_do_not_divide_by_nothing() -> None:
    story = waiting().thread(WORKER, "loader", {}, rest="peer_wait")
    story.waker(WORKER, "loader", "peer_wait", 0).waker(201, "x", "peer_wait", 0, of=WORKER)
    assert follow(story) == []


def test_what_the_waker_did_while_nobody_waited_for_it_does_not_count() -> None:
    """It worked for 300 ms and slept: of 500 ms in which it was waited for, it slept 200."""
    story = waiting().thread(WORKER, "loader", {"host_cpu": 300.0}, rest="sleep")
    story.waker(WORKER, "loader", "peer_wait", 500)
    assert shares(follow(story)) == pytest.approx({(WORKER, "host_cpu"): 0.6, (WORKER, "sleep"): 0.4})


def test_what_was_waited_for_before_there_was_a_thread_is_not_what_it_did() -> None:
    """It lived for 1 ms of the 200 that were waited: a client slept, then started it to ask with."""
    story = waiting().thread(WORKER, "asker", {"host_cpu": 1.0}, rest="")
    story.waker(WORKER, "asker", "peer_wait", 200)
    found = {(root.bucket, root.seen): root.share for root in follow(story)}
    assert found == pytest.approx({("host_cpu", True): 0.005, ("peer_wait", False): 0.995})


def test_a_thousand_short_processes_are_seen_as_one() -> None:
    """Each of them is hardly waited for."""
    story = waiting()
    for tid in range(500, 1500):
        story.thread(tid, "gzip", {"host_cpu": 1.5, "disk_wait": 0.5}, rest="")
        story.waker(tid, "gzip", "peer_wait", 2)
    found = shares(follow(story))
    assert {bucket: share for (_, bucket), share in found.items()} == pytest.approx(
        {"host_cpu": 0.75, "disk_wait": 0.25}
    )


def test_a_thousand_short_processes_that_a_thread_of_the_job_waits_for_are_seen_as_one() -> None:
    story = waiting().thread(JOB, "pin_memory", {}, tid=PINNER, rest="peer_wait")
    story.waker(PINNER, "pin_memory", "peer_wait", 2000, by_pid=JOB)
    for tid in range(500, 1500):
        story.thread(tid, "gzip", {"host_cpu": 2.0}, rest="").waker(tid, "gzip", "peer_wait", 2, of=PINNER)
    (root,) = follow(story)
    assert (root.bucket, root.seen, root.via) == ("host_cpu", True, ("pin_memory", "gzip"))


def test_short_processes_that_are_much_of_a_small_part_of_a_wait_are_seen_as_one() -> None:
    """Each is a 250th of what the thread between waits for, and hardly any of the wait asked about."""
    story = waiting().thread(JOB, "decode", {}, tid=102, rest="host_cpu")
    story.thread(JOB, "unpack", {}, tid=PINNER, rest="peer_wait")
    story.waker(102, "decode", "peer_wait", 1600, by_pid=JOB)
    story.waker(PINNER, "unpack", "peer_wait", 400, by_pid=JOB)
    for tid in range(500, 750):
        story.thread(tid, "gzip", {"host_cpu": 8.0}, rest="").waker(tid, "gzip", "peer_wait", 8, of=PINNER)
    found = {(root.bucket, root.seen, root.via[-1]): root.share for root in follow(story)}
    assert found == pytest.approx({("host_cpu", True, "decode"): 0.8, ("host_cpu", True, "gzip"): 0.2})


def test_a_waker_that_worked_longer_than_it_was_waited_for_did_not_sleep() -> None:
    story = waiting().thread(WORKER, "loader", {"host_cpu": 300.0, "disk_wait": 100.0}, rest="sleep")
    story.waker(WORKER, "loader", "peer_wait", 200)
    assert shares(follow(story)) == pytest.approx({(WORKER, "host_cpu"): 0.75, (WORKER, "disk_wait"): 0.25})


def test_a_short_wait_does_not_shrink_what_lies_further_along_the_way() -> None:
    """100 ms are waited for a thread that waits 1000 of its 2000 ms for the worker: half is the worker's."""
    story = waiting().process(WORKER, "loader", parent=JOB)
    story.thread(JOB, "pin_memory", {"host_cpu": 50.0, "peer_wait": 1000.0}, tid=PINNER, rest="disk_wait")
    story.thread(WORKER, "loader", {}, rest="host_cpu")
    story.waker(PINNER, "pin_memory", "peer_wait", 100, by_pid=JOB)
    story.waker(WORKER, "loader", "peer_wait", 1000, of=PINNER)
    assert shares(follow(story)) == pytest.approx(
        {(PINNER, "host_cpu"): 0.025, (PINNER, "disk_wait"): 0.475, (WORKER, "host_cpu"): 0.5}
    )


def test_a_wait_of_the_waker_that_nobody_is_known_to_have_ended_stays_unknown() -> None:
    story = waiting().thread(WORKER, "loader", {"host_cpu": 20.0}, rest="lock_wait")
    known, unknown = sorted(
        follow(story.waker(WORKER, "loader", "peer_wait", 1000)), key=lambda root: root.share
    )
    assert (known.bucket, known.seen, known.share) == ("host_cpu", True, pytest.approx(0.01))
    assert (unknown.bucket, unknown.seen, unknown.tid) == ("lock_wait", False, WORKER)


@pytest.mark.parametrize(
    ("kind", "bucket"),
    [
        (WakerKind.WAKER_IRQ_TIMER, "sleep"),
        (WakerKind.WAKER_IRQ_NET, "net_wait"),
    ],
)
def test_a_wait_of_the_waker_that_an_interrupt_ended_is_its_own(kind: WakerKind, bucket: str) -> None:
    story = waiting().thread(WORKER, "loader", {"host_cpu": 500.0}, rest="lock_wait")
    story.waker(WORKER, "loader", "peer_wait", 2000).waker(0, "", "lock_wait", 1500, of=WORKER, kind=kind)
    roots = follow(story)
    assert shares(roots) == pytest.approx({(WORKER, "host_cpu"): 0.25, (WORKER, bucket): 0.75})
    assert all(root.seen for root in roots)


@pytest.mark.parametrize(
    "kind", [WakerKind.WAKER_NONE, WakerKind.WAKER_IRQ_BLOCK, WakerKind.WAKER_IRQ_OTHER, 77]
)
def test_a_wait_of_the_waker_that_ended_nobody_knows_how_stays_unknown(kind: WakerKind) -> None:
    story = waiting().thread(WORKER, "loader", {"host_cpu": 500.0}, rest="lock_wait")
    story.waker(WORKER, "loader", "peer_wait", 2000).waker(0, "", "lock_wait", 1500, of=WORKER, kind=kind)
    roots = follow(story)
    assert shares(roots) == pytest.approx({(WORKER, "host_cpu"): 0.25, (WORKER, "lock_wait"): 0.75})
    assert [root.seen for root in roots] == [True, False]
