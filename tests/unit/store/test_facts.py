"""What is written window by window is read back as facts, to the nanosecond."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ingero.model.facts import Facts
from ingero.model.gpus import GpuNews, GpuSample
from ingero.model.layout import Bucket, CallFlag, Why
from ingero.model.window import BUCKET_NAMES, Container, PodEvent, SystemSample, Window
from ingero.store import migrations
from ingero.store.facts import FactReader
from ingero.store.reader import Reader
from tests.builders import (
    EPOCH_NS,
    SECOND,
    call,
    culprit,
    in_flight,
    oom,
    operation,
    process,
    retransmit,
    split,
    thread,
    waker,
    window,
    xid,
)

Stored = Callable[..., Reader]
ALWAYS = EPOCH_NS + 3600 * SECOND


@contextmanager
def facts_of(
    stored: Stored, *windows: Window, from_ns: int = EPOCH_NS, to_ns: int = ALWAYS
) -> Iterator[Facts]:
    with stored(*windows) as reader:
        node = reader.rows("SELECT id FROM node")[0][0]
        yield FactReader(reader.connection, node, EPOCH_NS).read(from_ns, to_ns)


def test_seconds_are_summed_into_slices_of_two_exactly(stored: Stored) -> None:
    windows = [window(n * SECOND, threads=thread(gpu_wait=n + 1, runqueue=10 * n)) for n in range(5)]
    with facts_of(stored, *windows) as facts:
        found = facts.threads[np.argsort(facts.threads["slice"])]
        assert found["slice"].tolist() == [0, 1, 2]
        assert found["ns"][:, Bucket.GPU_WAIT].tolist() == [1 + 2, 3 + 4, 5]
        assert found["ns"][:, Bucket.RUNQUEUE].tolist() == [0 + 10, 20 + 30, 40]
        assert found["ns"].sum() == sum(11 * n + 1 for n in range(5))
        assert facts.at_ns(1) == EPOCH_NS + 2 * SECOND


def test_every_column_of_a_thread_survives(stored: Stored) -> None:
    row = thread(pid=100, tid=107, comm="loader", **{name: 1000 + n for n, name in enumerate(BUCKET_NAMES)})
    row["gap"] = split(**{name: 500 + n for n, name in enumerate(BUCKET_NAMES)})
    row["throttled_ns"], row["late_ns"], row["feeder"] = 11, 12, False
    row["voluntary_switches"], row["involuntary_switches"], row["major_faults"] = 13, 14, 15
    with facts_of(stored, window(threads=[row, thread(pid=100, sleep=5)])) as facts:
        assert len(facts.threads) == 2
        found = facts.threads[facts.threads["tid"] == 107][0]
        assert (found["pid"], found["feeder"], facts.strings[int(found["comm"])]) == (100, 0, "loader")
        assert found["ns"].tolist() == [1000 + n for n in range(len(BUCKET_NAMES))]
        assert found["gap"].tolist() == [500 + n for n in range(len(BUCKET_NAMES))]
        assert (found["throttled_ns"], found["late_ns"]) == (11, 12)
        switches = ("voluntary_switches", "involuntary_switches", "major_faults")
        assert [int(found[name]) for name in switches] == [13, 14, 15]


def test_operations_keep_counts_bytes_errors_and_their_split(stored: Stored) -> None:
    one = operation("cudaMemcpy", [100, 300], bytes=4096, errors=1, caller=1)
    one["split"], one["recorded"] = split(cuda_cpu=150, gpu_wait=250), 2
    with facts_of(stored, window(operations=one), window(SECOND, operations=one)) as facts:
        (found,) = facts.operations
        assert facts.ops[int(found["op"])].name == "cudaMemcpy"
        assert facts.ops[int(found["op"])].kind == "copy"
        assert (found["slice"], found["pid"], found["caller"]) == (0, 100, 1)
        assert (found["count"], found["sum_ns"], found["bytes"], found["errors"]) == (4, 800, 8192, 2)
        assert (found["max_ns"], found["recorded"]) == (300, 4)
        assert found["split"][Bucket.CUDA_CPU] == 300
        assert found["split"][Bucket.GPU_WAIT] == 500


def test_callers_of_one_operation_stay_apart(stored: Stored) -> None:
    both = window(operations=[operation(caller=1), operation(caller=2)])
    with facts_of(stored, both) as facts:
        assert sorted(facts.operations["caller"].tolist()) == [1, 2]


def test_culprits_and_wakers_keep_who_and_how_long(stored: Stored) -> None:
    seen = window(
        culprits=[culprit(pid=200, comm="stress", ns=7), culprit(pid=0, comm="", ns=9, throttled=True)],
        wakers=waker(waker_pid=300, comm="loader"),
    )
    with facts_of(stored, seen) as facts:
        who = {(int(c["pid"]), int(c["throttled"])): int(c["ns"]) for c in facts.culprits}
        assert who == {(200, 0): 7, (0, 1): 9}
        (woken,) = facts.wakers
        assert (woken["waker_pid"], woken["waker_tid"], woken["bucket"]) == (300, 300, Bucket.PEER_WAIT)
        assert (woken["ns"], woken["count"]) == (7_000_000, 2)
        assert facts.strings[int(woken["comm"])] == "loader"


def test_only_what_lies_in_the_range_is_read(stored: Stored) -> None:
    windows = [window(n * SECOND, threads=thread(gpu_wait=1), operations=operation()) for n in range(10)]
    with facts_of(stored, *windows, from_ns=EPOCH_NS + 4 * SECOND, to_ns=EPOCH_NS + 6 * SECOND) as facts:
        assert facts.threads["slice"].tolist() == [2]
        assert facts.threads["ns"].sum() == 2
        assert facts.operations["count"].sum() == 2


def test_processes_have_their_parents_containers_and_ends(stored: Stored) -> None:
    seen = window(
        processes=[
            process(100, 1, cgroup_id=7, parent_pid=50, rank=3),
            process(101, 2, comm="loader", parent_pid=100, end_ns=SECOND // 2, exit_code=137),
        ],
        containers=[Container(7, "/x", "3f2a9c41d7be", "docker")],
    )
    with facts_of(stored, seen) as facts:
        job, worker = facts.processes[100], facts.processes[101]
        assert (job.container, job.parent_pid, job.rank, job.listens) == ("3f2a9c41d7be", 50, 3, None)
        assert (worker.comm, worker.parent_pid, worker.exit_code, worker.container) == (
            "loader", 100, 137, None,
        )  # fmt: skip


def test_of_a_reused_number_the_latest_bearer_stands_for_it(stored: Stored) -> None:
    old = process(100, 0, comm="old", end_ns=SECOND)
    new = process(100, 2 * SECOND, comm="new")
    with facts_of(stored, window(processes=[old]), window(2 * SECOND, processes=[new])) as facts:
        assert facts.processes[100].comm == "new"


def test_failed_calls_are_told_by_operation_and_code(stored: Stored) -> None:
    failed = [
        call("cudaMalloc", at_ns=at, ret=ret, why=int(Why.WHY_ERROR)) for at, ret in ((5, 2), (9, 2), (7, 1))
    ]
    seen = window(calls=failed, operations=operation("cudaMalloc", errors=3))
    with facts_of(stored, seen) as facts:
        found = {(each.op, each.code): (each.count, each.first_ns, each.last_ns) for each in facts.errors}
        assert found == {
            ("cudaMalloc", 2): (2, EPOCH_NS + 5, EPOCH_NS + 9),
            ("cudaMalloc", 1): (1, EPOCH_NS + 7, EPOCH_NS + 7),
        }
        assert facts.errors[0].event_id.startswith("gpu-node-01:")


def test_the_id_of_an_error_leads_to_its_event(stored: Stored) -> None:
    failed = call("cudaMalloc", at_ns=5, ret=2, why=int(Why.WHY_ERROR))
    with stored(window(calls=failed, operations=operation("cudaMalloc", errors=1))) as reader:
        facts = FactReader(reader.connection, 1, EPOCH_NS).read(EPOCH_NS, ALWAYS)
        number = reader.event_id(facts.errors[0].event_id)
        assert reader.rows("SELECT ret FROM event WHERE id = ?", (number,)) == [(2,)]


def test_kills_faults_and_lost_packets_are_incidents(stored: Stored) -> None:
    seen = window(
        ooms=oom(at_ns=5, pid=100), xids=xid(79, at_ns=6), tcp=retransmit(at_ns=7, pid=100, dport=443)
    )
    with facts_of(stored, seen) as facts:
        assert [(each.pid, each.at_ns) for each in facts.ooms] == [(100, EPOCH_NS + 5)]
        (fault,) = facts.xids
        assert (fault.code, fault.text) == (79, "0000:01:00.0 GPU has fallen off the bus")
        (packet,) = facts.retransmits
        assert packet.text == "10.0.0.1:443"


def test_calls_in_flight_and_collectives_are_read(stored: Stored) -> None:
    rounds = [call("ncclAllReduce", at_ns=n, comm_hash=5, seq=n, rank=1, nranks=2, bytes=64) for n in (1, 2)]
    seen = window(calls=rounds, in_flight=in_flight(since_ns=7, now_ns=SECOND))
    with facts_of(stored, seen) as facts:
        (stuck,) = facts.in_flight
        assert (stuck.op, stuck.bucket, stuck.since_ns) == ("cudaStreamSynchronize", "gpu_wait", EPOCH_NS + 7)
        arrived = sorted(
            (each.seq, each.rank, each.nranks, each.at_ns, each.bytes) for each in facts.arrivals
        )
        assert arrived == [(n, 1, 2, EPOCH_NS + n, 64) for n in (1, 2)]


def test_frees_of_nothing_are_told_apart(stored: Stored) -> None:
    calls = [
        call("cudaFree", at_ns=1, args=[0], weight=3),
        call("cudaFree", at_ns=2, args=[4096]),
        call("cudaFree", at_ns=3, args=[0], ret=1, why=int(Why.WHY_ERROR)),
        call("cudaFree", at_ns=4, args=[0], nested=True),
        call("cudaFree", at_ns=5, args=[0], pid=7),
    ]
    with facts_of(stored, window(calls=calls)) as facts:
        assert facts.freed_nothing(100) == {0: 3}


def test_how_far_detail_reaches_back_is_known(stored: Stored) -> None:
    seconds = [window(n * SECOND, calls=[call(at_ns=n * SECOND + 1)]) for n in range(4)]
    with facts_of(stored, *seconds) as facts:
        assert facts.complete_from_ns is None


def test_collectives_of_a_joined_communicator_are_known_by_it_and_not_by_a_number(stored: Stored) -> None:
    """The process was told nothing (no RANK): the communicator said who it is."""
    joined = int(CallFlag.CALL_COMM_JOINED)
    seen = window(
        calls=[call("ncclAllReduce", at_ns=1, comm_hash=5, seq=9, rank=1, nranks=2, bytes=64, flags=joined)]
    )
    with facts_of(stored, seen) as facts:
        assert facts.arrivals == []
        (each,) = facts.unmatched
        assert (each.comm_hash, each.seq, each.rank, each.nranks, each.bytes) == (5, -1, 1, 2, 64)


def test_marks_are_single_calls_oldest_first(stored: Stored) -> None:
    calls = [call("cudaStreamSynchronize", took, at_ns=at) for at, took in ((30, 3), (10, 1), (20, 2))]
    other = [call("cudaStreamSynchronize", 9, at_ns=15, pid=7), call("cudaFree", 9, at_ns=16)]
    with facts_of(stored, window(calls=[*calls, *other])) as facts:
        number = next(n for n, op in facts.ops.items() if op.name == "cudaStreamSynchronize")
        marks = facts.marks(100, number)
        assert (marks - [EPOCH_NS, 0]).tolist() == [[10, 1], [20, 2], [30, 3]]
        assert facts.marks(12345, number).shape == (0, 2)


def test_cards_the_machine_and_losses_are_read(stored: Stored) -> None:
    seen = window(
        calls=[call(gpu_id=1), call(gpu_id=3), call(pid=7)],
        system=SystemSample(0.5, None, None, 1.5, 8, 0),
        losses={"ring_call": 7},
    )
    seen.gpus = GpuNews(
        samples=(GpuSample(1, 0),)
    )  # which card a process chose matters where one was watched
    with facts_of(stored, seen, window(SECOND, losses={"ring_call": 2})) as facts:
        assert facts.gpus == {100: {1, 3}}
        (sample,) = facts.system
        assert (sample.cpu_share, sample.memory_share, sample.load1) == (0.5, None, 1.5)
        (loss,) = facts.losses
        assert (loss.reason, loss.count) == ("ring_call", 9)
        assert (loss.from_ns, loss.to_ns) == (EPOCH_NS, EPOCH_NS + 2 * SECOND)


@pytest.mark.parametrize("windows", [[], [window()]])
def test_an_empty_recording_is_no_facts_and_no_failure(stored: Stored, windows: list[Window]) -> None:
    with facts_of(stored, *windows) as facts:
        assert facts.node == "gpu-node-01"
        tables = (facts.threads, facts.operations, facts.culprits, facts.wakers)
        assert [len(table) for table in tables] == [0, 0, 0, 0]
        assert facts.errors == []


def test_the_cores_of_a_process_survive_and_a_recording_of_before_has_none(stored: Stored) -> None:
    with stored(window(processes=[process(cpus="2-3,7")])) as reader:
        node = reader.rows("SELECT id FROM node")[0][0]
        read = lambda connection: FactReader(connection, node, EPOCH_NS).read(EPOCH_NS, ALWAYS)  # noqa: E731
        assert read(reader.connection).processes[100].cpus == (2, 3, 7)
        before = sqlite3.connect(":memory:")
        before.executescript("\n".join(reader.connection.iterdump()))
        for (view,) in before.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall():
            before.execute(f"DROP VIEW {view}")
        before.execute("ALTER TABLE process DROP COLUMN cpus")
        assert read(before).processes[100].cpus == ()
        before.execute("DELETE FROM migration WHERE name = '0005-cpus'")
        before.execute(f"PRAGMA application_id = {migrations.APPLICATION_ID}")
        before.commit()
        assert migrations.upgrade(before, Path("before.db")) == ["0005-cpus"]
        assert read(before).processes[100].cpus == ()
        before.close()


@pytest.mark.parametrize(
    ("path", "unknown"), [("/docker/3f2a9c41d7be", False), ("/kubepods.slice/pod1/3f2a9c41d7be", True)]
)
def test_restarts_of_pods_are_unknown_only_where_there_are_pods(
    stored: Stored, path: str, unknown: bool
) -> None:
    with facts_of(stored, window(containers=[Container(7, path, "3f2a9c41d7be", None)])) as facts:
        assert ("pods" in facts.absent) == unknown


def test_a_pod_that_the_kubelet_told_while_probes_were_put_on_is_known_from_the_first_window_on(
    stored: Stored,
) -> None:
    """It is asked at once and answers before anything is recorded; each pod is told a single time."""
    about = ("train-0", "ml", "u-1")
    first = window(
        containers=[Container(5, "/kubepods/burstable/x", "ab" * 32, pod="train-0", namespace="ml")],
        pod_events=[PodEvent(EPOCH_NS - 3 * SECOND, *about, "", "seen", restarts=0)],
    )
    at_ns = EPOCH_NS + SECOND
    later = window(SECOND, pod_events=[PodEvent(at_ns, *about, "trainer", "restart", "Error", 1, 1)])
    with facts_of(stored, first, later) as facts:
        assert "pods" not in facts.absent
        assert [(each.event, each.at_ns) for each in facts.pods] == [("restart", at_ns)]
