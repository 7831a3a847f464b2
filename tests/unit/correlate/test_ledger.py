"""Which waits cost the GPU anything: what always holds, and what a wait is charged to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero.correlate.ledger import WAITS, harmful
from ingero.correlate.loss import SliceLedger
from ingero.model.facts import THREADS, OpFact
from ingero.model.layout import Bucket, WakerKind
from ingero.model.window import BUCKETS
from tests.facts import HOG, JOB, MS, WORKER, Story, job

HOUR_NS = 3_600_000_000_000  # a thread's slice may be told as one, after a suspend or a long poll
amounts = st.integers(0, HOUR_NS)


@st.composite
def rows(draw: st.DrawFn) -> tuple[np.void, int]:
    """A thread's slice that can be: gaps are part of the time, coming late is part of a wait for a core."""
    row = np.zeros(1, THREADS)[0]
    for bucket in range(BUCKETS):
        row["ns"][bucket] = total = draw(amounts)
        row["gap"][bucket] = draw(st.integers(0, total))
    busy = int(row["ns"][Bucket.RUNQUEUE] - row["gap"][Bucket.RUNQUEUE])
    row["late_ns"] = draw(st.integers(0, busy))
    in_syncs = draw(st.integers(0, 2 * busy))  # runtime and driver may both tell of it
    return row, in_syncs


@given(rows())
def test_no_more_is_lost_to_a_bucket_than_was_spent_in_it(made: tuple[np.void, int]) -> None:
    row, in_syncs = made
    assert (harmful(row, in_syncs) <= row["ns"]).all()


@given(rows())
def test_nothing_is_ever_negative(made: tuple[np.void, int]) -> None:
    row, in_syncs = made
    assert (harmful(row, in_syncs) >= 0).all()


@given(rows())
def test_waits_while_the_gpu_has_nothing_always_count(made: tuple[np.void, int]) -> None:
    row, in_syncs = made
    exposed = harmful(row, in_syncs)
    assert all(exposed[bucket] >= row["gap"][bucket] for bucket in WAITS)


@given(rows())
def test_no_more_is_hidden_than_the_thread_then_waited_for_the_gpu(made: tuple[np.void, int]) -> None:
    row, _ = made
    row["gap"] = 0  # else the kernel side has told
    exposed = harmful(row, 0)
    waited = sum(int(row["ns"][bucket]) for bucket in WAITS)
    hidden = waited - sum(int(exposed[bucket]) for bucket in WAITS)
    busy_gpu = int(row["ns"][Bucket.GPU_WAIT] - row["gap"][Bucket.GPU_WAIT])
    assert hidden <= busy_gpu + len(WAITS)  # a nanosecond per bucket is lost in rounding


@given(rows())
def test_working_sleeping_and_waiting_for_the_gpu_are_no_loss(made: tuple[np.void, int]) -> None:
    row, in_syncs = made
    exposed = harmful(row, in_syncs)
    for bucket in (Bucket.HOST_CPU, Bucket.CUDA_CPU, Bucket.GPU_WAIT, Bucket.SLEEP):
        assert exposed[bucket] == 0


def ledger(story: Story) -> SliceLedger:
    return story.timeline().jobs[0].slices[0]


def test_all_waits_of_a_thread_that_never_waits_for_the_gpu_count() -> None:
    story = Story(1).process(JOB, "x").thread(JOB, "x", {"disk_wait": 700.0}, feeder=True, rest="host_cpu")
    story.calls("cuLaunchKernel", 10, 1)
    assert ledger(story).lost_ns("disk_wait") == 700 * MS


def test_waits_beyond_what_the_gpu_hides_count_by_how_much_they_exceed_it() -> None:
    story = Story(1).process(JOB, "x").calls("cuLaunchKernel", 10, 1)
    story.thread(JOB, "x", {"disk_wait": 900.0, "gpu_wait": 300.0}, feeder=True, rest="host_cpu")
    assert ledger(story).lost_ns("disk_wait") == 600 * MS


def test_a_wait_for_a_core_is_divided_by_whose_fault_it_was() -> None:
    lost = {"runqueue": 1000.0}
    story = job(lost, lost, slices=1, throttled_ns=200).process(WORKER, "loader", parent=JOB)
    story.culprit(HOG, "stress", 300).culprit(WORKER, "loader", 200).culprit(0, "q", 200, throttled=True)
    story.process(301, "pod", container="abc").culprit(301, "pod", 50)
    parts = {each.whose: each.ns for each in ledger(story).lost}
    assert parts == {
        "quota": 200 * MS, "others": 300 * MS, "neighbours": 50 * MS, "own": 200 * MS, "unknown": 250 * MS,
    }  # fmt: skip


@pytest.mark.parametrize(("ours", "whose"), [("abc", "others"), ("def", "neighbours"), (None, "neighbours")])
def test_a_neighbour_is_who_lives_in_another_container(ours: str | None, whose: str) -> None:
    lost = {"runqueue": 1000.0}
    story = job(lost, lost, slices=1).process(JOB, "python3", container=ours)
    story.process(HOG, "stress", container="abc").culprit(HOG, "stress", 1000)
    assert {each.whose: each.ns for each in ledger(story).lost} == {whose: 1000 * MS}


def test_what_the_agent_took_is_not_told_as_a_loss() -> None:
    lost = {"runqueue": 1000.0}
    story = job(lost, lost, slices=1).culprit(999, "ingero", 400).culprit(HOG, "stress", 600)
    assert {each.whose: each.ns for each in ledger(story).lost} == {"others": 600 * MS}


def test_culprits_that_took_more_than_was_waited_do_not_make_it_more() -> None:
    lost = {"runqueue": 400.0}
    story = job(lost, lost, slices=1).culprit(HOG, "stress", 4000)
    assert sum(each.ns for each in ledger(story).lost) == 400 * MS


def test_a_feeding_thread_that_works_while_another_waits_for_it_is_no_loss() -> None:
    waits = {"lock_wait": 1000.0}
    story = job(waits, waits, slices=1)
    story.thread(JOB, "pt_autograd_0", {}, tid=101, feeder=True, rest="cuda_cpu")
    story.waker(101, "pt_autograd_0", "lock_wait", 1000, by_pid=JOB)
    timeline = story.timeline()
    main = next(each for each in timeline.jobs if each.pid == JOB)
    assert main.slices[0].lost == []


@pytest.mark.parametrize("bucket", ["lock_wait", "peer_wait"])
def test_a_wait_nobody_is_known_to_have_ended_is_lost_to_the_unknown(bucket: str) -> None:
    waits = {bucket: 1000.0}
    (lost,) = ledger(job(waits, waits, slices=1)).lost
    assert (lost.bucket, lost.whose, lost.ns) == (bucket, "unknown", 1000 * MS)


def test_less_than_a_millisecond_is_not_told() -> None:
    tiny = {"disk_wait": 0.9}
    assert ledger(job(tiny, tiny, slices=1)).lost == []


def test_a_wait_for_a_core_in_a_call_seen_at_both_layers_is_hidden_only_once() -> None:
    story = Story(1).process(JOB, "x").calls("cuLaunchKernel", 10, 1).culprit(HOG, "stress", 900)
    story.thread(JOB, "x", {"runqueue": 900.0, "gpu_wait": 100.0}, feeder=True, rest="host_cpu")
    story.facts.ops[13] = OpFact("driver", "cuStreamSynchronize", "sync")
    story.calls("cudaStreamSynchronize", 200, 500, split={"gpu_wait": 50, "runqueue": 450})
    alone = ledger(story).lost_ns("runqueue")
    inner = next(row for row in story.rows["operations"] if row["op"] == 2) | {"op": 13, "caller": 1}
    story.rows["operations"].append(inner)
    assert ledger(story).lost_ns("runqueue") == alone == 350 * MS


MASTER = 50


def served(busy: dict[str, float], rest: str = "peer_wait", listens: bool = True) -> Story:
    """The GPU thread waits on a pipe for its parent, which does `busy` and `rest`."""
    waits = {"peer_wait": 1700.0, "host_cpu": 20.0, "cuda_cpu": 20.0}
    story = job(waits, {"peer_wait": 1700.0}, steps=10, slices=12).process(JOB, "engine", parent=MASTER)
    story.process(MASTER, "api", listens=listens).thread(MASTER, "api", busy, rest=rest)
    return story.waker(MASTER, "api", "peer_wait", 1700)


def by_net(story: Story, kind: WakerKind = WakerKind.WAKER_IRQ_NET) -> Story:
    return story.waker(0, "", "peer_wait", 1900, of=MASTER, kind=kind)


@pytest.mark.parametrize("rest", ["sleep", "net_wait", "peer_wait"])
def test_waiting_for_somebody_who_waits_to_be_asked_is_no_loss(rest: str) -> None:
    assert ledger(served({}, rest)).lost == []
    (lost,) = ledger(served({}, rest, listens=False)).lost
    assert (lost.bucket, lost.ns) == (rest, pytest.approx(1700 * MS, abs=10))


def test_waiting_for_a_server_that_computes_or_waits_for_a_disk_is_a_loss() -> None:
    story = served({"host_cpu": 600.0, "disk_wait": 400.0}, rest="net_wait")
    parts = {each.bucket: each.ns for each in ledger(story).lost}
    assert parts == {"host_cpu": 510 * MS, "disk_wait": 340 * MS}


def test_an_idle_server_whose_front_end_logs_to_disk_is_quiet() -> None:
    assert by_net(served({"host_cpu": 30.0, "disk_wait": 40.0})).kinds() == []


def test_two_workers_of_a_prefork_server_do_not_starve_each_other() -> None:
    """The parent waits for clients and is short of a core for 5 ms."""
    story = served({"host_cpu": 5.0, "runqueue": 5.0}).culprit(HOG, "stress", 5, victim=MASTER)
    assert by_net(story).kinds() == []
