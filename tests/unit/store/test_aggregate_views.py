from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ingero.model.layout import WakerKind
from ingero.model.window import IO, Container, InFlightFlag, SystemSample, Window
from tests.builders import (
    EPOCH_NS,
    SECOND,
    block,
    call,
    culprit,
    in_flight,
    operation,
    process,
    thread,
    waker,
    window,
)

Ask = Callable[..., list[dict[str, Any]]]


def test_operations_count_every_call(ask: Ask) -> None:
    durations = [1_000] * 98 + [50_000, 90_000]
    (row,) = ask(
        "SELECT * FROM operations", window(operations=operation("cudaMemcpy", durations, caller=1, bytes=640))
    )
    assert row["bucket_start_ns"] == EPOCH_NS
    assert (row["node"], row["pid"], row["layer"], row["op"], row["caller"]) == (
        "gpu-node-01",
        100,
        "runtime",
        "cudaMemcpy",
        "runtime",
    )
    assert (row["count"], row["exact"], row["count_error"], row["bytes"]) == (100, 1, 0, 640)
    assert (row["sum_ns"], row["min_ns"], row["max_ns"]) == (sum(durations), 1_000, 90_000)
    assert abs(row["p50_ns"] - 1_000) < 125
    assert 43_000 < row["p99_ns"] <= 90_000


def test_bytes_of_an_operation_that_has_none_are_unknown(ask: Ask) -> None:
    (row,) = ask("SELECT bytes, caller FROM operations", window(operations=operation("cudaLaunchKernel")))
    assert row == {"bytes": None, "caller": None}


def test_extremes_nobody_saw_are_null(ask: Ask) -> None:
    seen = operation("cudaLaunchKernel", [5_000])
    seen["min_ns"] = seen["max_ns"] = 0
    (row,) = ask("SELECT min_ns, max_ns, p50_ns FROM operations", window(operations=seen))
    assert (row["min_ns"], row["max_ns"]) == (None, None)
    assert row["p50_ns"] > 4_000


def test_thread_time_has_a_row_per_bucket_that_was_used(ask: Ask) -> None:
    seen = window(threads=[thread(tid=101, gpu_wait=700, cuda_cpu=300), thread(tid=102, sleep=1000)])
    rows = ask("SELECT tid, comm, bucket, ns, bucket_start_ns FROM thread_time ORDER BY tid, ns", seen)
    assert [(r["tid"], r["bucket"], r["ns"]) for r in rows] == [
        (101, "cuda_cpu", 300),
        (101, "gpu_wait", 700),
        (102, "sleep", 1000),
    ]
    assert rows[0]["comm"] == "python"


def test_a_cpu_quota_is_nobodys_fault(ask: Ask) -> None:
    seen = window(culprits=[culprit(), culprit(pid=0, comm="", throttled=True)])
    rows = ask("SELECT victim_pid, pid, comm, bucket, ns, count FROM culprits", seen)
    assert [(r["pid"], r["comm"]) for r in rows] == [(200, "stress"), (None, "[cpu quota]")]
    assert (rows[0]["victim_pid"], rows[0]["bucket"], rows[0]["ns"], rows[0]["count"]) == (
        100,
        "runqueue",
        5_000_000,
        3,
    )


def test_wakers_are_tasks_or_interrupts(ask: Ask) -> None:
    kinds = [
        WakerKind.WAKER_TASK,
        WakerKind.WAKER_IRQ_TIMER,
        WakerKind.WAKER_IRQ_BLOCK,
        WakerKind.WAKER_IRQ_NET,
        WakerKind.WAKER_IRQ_OTHER,
        WakerKind.WAKER_NONE,
    ]
    rows = ask("SELECT waker, waker_pid FROM wakers", window(wakers=[waker(kind=int(k)) for k in kinds]))
    assert [(r["waker"], r["waker_pid"]) for r in rows] == [
        ("pt_data_worker", 300),
        ("irq:timer", None),
        ("irq:block", None),
        ("irq:net", None),
        ("irq:other", None),
        (None, None),
    ]


def test_losses_keep_their_interval(ask: Ask) -> None:
    rows = ask("SELECT * FROM losses", window(SECOND, losses={"ring_call": 7, "comm_full": 0}))
    assert rows == [
        {
            "node": "gpu-node-01",
            "start_ns": EPOCH_NS + SECOND,
            "end_ns": EPOCH_NS + 2 * SECOND,
            "reason": "ring_call",
            "count": 7,
        }
    ]


def test_a_container_learnt_later_replaces_what_was_known(ask: Ask) -> None:
    rows = ask(
        "SELECT * FROM containers",
        window(containers=[Container(7, "/x")]),
        window(SECOND, containers=[Container(7, "/x", "abc", "docker", None, None, "slurm:12.0")]),
    )
    assert rows == [
        {
            "cgroup_id": 7,
            "node": "gpu-node-01",
            "container_id": "abc",
            "runtime": "docker",
            "pod": None,
            "namespace": None,
            "job": "slurm:12.0",
        }
    ]


def test_block_requests_are_summed_by_who_issued_them(ask: Ask) -> None:
    rows = ask(
        "SELECT pid, count, bytes, ns, max_ns FROM io_second ORDER BY pid, op_id",
        window(blocks=[block(10), block(30), block(5, pid=7), block(8, write=1)]),
    )
    assert [tuple(r.values()) for r in rows] == [
        (7, 1, 4096, 5, 5),
        (100, 2, 8192, 40, 30),
        (100, 1, 4096, 8, 8),
    ]


def stuck(seconds: int, **more: Any) -> list[Window]:
    return [
        window(n * SECOND, in_flight=in_flight(since_ns=5, now_ns=(n + 1) * SECOND, **more))
        for n in range(seconds)
    ]


def test_a_call_in_flight_keeps_when_it_was_first_seen_and_leaves_when_it_returns(ask: Ask) -> None:
    sql = "SELECT since_ns, first_seen_ns, last_seen_ns, syscall FROM in_flight"
    (row,) = ask(sql, *stuck(3))
    assert row == {
        "since_ns": EPOCH_NS + 5,
        "first_seen_ns": EPOCH_NS + SECOND,
        "last_seen_ns": EPOCH_NS + 3 * SECOND,
        "syscall": 202,
    }
    assert ask("SELECT * FROM in_flight WHERE pid = 7", *stuck(3, pid=7), window(4 * SECOND)) == []


def test_a_call_in_flight_when_a_trace_ended_is_no_later_ones_to_drop(ask: Ask) -> None:
    ask("SELECT 1", *stuck(3))
    later = [window(n * SECOND) for n in range(10, 13)]
    (row,) = ask("SELECT * FROM unfinished_calls", *later)
    assert (row["op"], row["duration_ns"]) == ("cudaStreamSynchronize", 3 * SECOND - 5)
    assert (row["entered"], row["died"]) == (1, 0)


def test_a_call_its_thread_died_in_stays_as_unfinished(ask: Ask) -> None:
    killed = in_flight(since_ns=5, now_ns=2 * SECOND + 500)
    killed["dead"] = 1
    (row,) = ask(
        "SELECT * FROM unfinished_calls", *stuck(2), window(2 * SECOND, in_flight=killed), window(3 * SECOND)
    )
    assert (row["node"], row["pid"], row["layer"], row["comm"]) == ("gpu-node-01", 100, "runtime", "python")
    assert (row["duration_ns"], row["died"], row["bucket"]) == (2 * SECOND + 495, 1, "gpu_wait")


def test_a_call_found_on_its_stack_says_that_it_began_earlier(ask: Ask) -> None:
    found = in_flight(since_ns=5)
    found["before_attach"] = InFlightFlag.CALL_BEFORE | InFlightFlag.WITH_NCCL
    (row,) = ask("SELECT entered, died FROM unfinished_calls", window(in_flight=found))
    assert row == {"entered": 0, "died": 0}


def test_the_machine_is_sampled_and_unknown_stays_null(ask: Ask) -> None:
    (row,) = ask("SELECT * FROM system_sample", window(system=SystemSample(0.5, None, None, 1.5, 8, 0)))
    assert (row["cpu_share"], row["memory_share"], row["swap_bytes"], row["psi_cpu_some"]) == (
        0.5,
        None,
        0,
        None,
    )


def test_processes_appear_with_epoch_times_and_their_life(ask: Ask) -> None:
    sql = "SELECT * FROM processes"
    (row,) = ask(
        sql, window(processes=[process(start_ns=2 * SECOND, rank=3, end_ns=9 * SECOND, exit_code=137)])
    )
    assert (row["pid"], row["start_ns"], row["end_ns"]) == (100, EPOCH_NS + 2 * SECOND, EPOCH_NS + 9 * SECOND)
    assert (row["rank"], row["local_rank"], row["uid"], row["cmdline"]) == (3, None, 1000, "python train.py")


def test_begin_and_end_of_a_process_are_events(ask: Ask) -> None:
    began = process(start_ns=SECOND, parent_pid=50)
    ended = process(start_ns=SECOND, parent_pid=50, end_ns=3 * SECOND, exit_code=9)
    rows = ask(
        "SELECT op, timestamp, arg0, ret_code FROM events ORDER BY timestamp",
        window(SECOND, processes=[began]),
        window(2 * SECOND, processes=[began]),
        window(3 * SECOND, processes=[ended]),
    )
    assert [tuple(r.values()) for r in rows] == [
        ("fork", EPOCH_NS + SECOND, 50, None),
        ("exit", EPOCH_NS + 3 * SECOND, 50, 9),
    ]


def test_a_reused_pid_is_another_process(ask: Ask) -> None:
    old = process(start_ns=0, rank=0, end_ns=5 * SECOND)
    new = process(start_ns=6 * SECOND, rank=7)
    rows = ask(
        "SELECT timestamp, rank FROM events WHERE op = 'cudaFree' ORDER BY timestamp",
        window(processes=[process(start_ns=0, rank=0)], calls=call("cudaFree", at_ns=1)),
        window(
            5 * SECOND,
            processes=[old, new],
            calls=[call("cudaFree", at_ns=4 * SECOND), call("cudaFree", at_ns=7 * SECOND)],
        ),
    )
    assert [row["rank"] for row in rows] == [0, 0, 7]
    assert len(ask("SELECT * FROM processes")) == 2


def test_calls_seen_before_their_process_is_known_belong_to_it(ask: Ask) -> None:
    seen = [window(calls=call(at_ns=5)), window(SECOND, processes=[process(start_ns=0, rank=2)])]
    (row,) = ask("SELECT rank FROM events WHERE source = 1", *seen)
    assert row["rank"] == 2
    assert len(ask("SELECT * FROM processes")) == 1


def test_calls_after_the_end_of_a_process_are_not_the_dead_ones(ask: Ask) -> None:
    dead = process(start_ns=0, rank=1, end_ns=SECOND)
    rows = ask(
        "SELECT rank FROM events WHERE source = 1 ORDER BY timestamp",
        window(processes=[dead], calls=[call(at_ns=5), call(at_ns=2 * SECOND)]),
        window(3 * SECOND, processes=[process(start_ns=2 * SECOND - 5, rank=6)]),
    )
    assert [row["rank"] for row in rows] == [1, 6]


def test_counts_of_a_process_that_ended_within_the_window_are_its_own(ask: Ask) -> None:
    gone = process(start_ns=0, end_ns=SECOND // 2)
    seen = window(processes=[gone], operations=operation(), threads=thread(gpu_wait=5))
    assert len(ask("SELECT * FROM processes", seen, window(SECOND, operations=operation()))) == 1


def test_a_start_told_in_ticks_and_in_nanoseconds_is_one_process(ask: Ask) -> None:
    rows = ask(
        "SELECT pid FROM processes",
        window(processes=[process(start_ns=12_345_678_901)]),
        window(SECOND, processes=[process(start_ns=12_340_000_000)]),
    )
    assert len(rows) == 1


def test_time_of_a_poll_told_later_stands_in_the_window_it_belongs_to(ask: Ask) -> None:
    late = thread(tid=7, peer_wait=400)
    late["window_ns"] = SECOND
    rows = ask(
        "SELECT bucket_start_ns, bucket, ns FROM thread_time ORDER BY bucket_start_ns, bucket",
        window(SECOND, threads=thread(tid=7, host_cpu=600)),
        window(2 * SECOND, threads=[thread(tid=7, host_cpu=1000), late]),
    )
    assert [(row["bucket_start_ns"] - EPOCH_NS, row["bucket"], row["ns"]) for row in rows] == [
        (SECOND, "host_cpu", 600),
        (SECOND, "peer_wait", 400),
        (2 * SECOND, "host_cpu", 1000),
    ]


def test_time_lost_to_the_gil_is_kept_and_unknown_is_null(ask: Ask) -> None:
    known, unknown = thread(tid=1, lock_wait=9), thread(tid=2, lock_wait=9)
    known["gil_ns"] = 7
    rows = ask("SELECT tid, gil_ns FROM thread_second ORDER BY tid", window(threads=[known, unknown]))
    assert [tuple(row.values()) for row in rows] == [(1, 7), (2, None)]


def test_disk_use_of_others_is_kept_beside_that_of_targets(ask: Ask) -> None:
    others = np.array([(200, 1, 8, b"dd", 5, 4096, 900, -1), (0, 0, 8, b"", 1, 512, 10, 10)], IO)
    seen = window(
        blocks=block(700, pid=100), io=others, processes=[process()], bystanders=[process(200, target=False)]
    )
    rows = ask(
        "SELECT i.pid, p.target, o.name AS op, i.dev, i.count, i.bytes, i.ns, i.max_ns FROM io_second i"
        " LEFT JOIN process p ON p.id = i.process_id JOIN op o ON o.id = i.op_id ORDER BY i.pid",
        seen,
    )
    assert [tuple(row.values()) for row in rows] == [
        (None, None, "read", 8, 1, 512, 10, 10),
        (100, 1, "read", 0x800000, 1, 4096, 700, 700),
        (200, 0, "write", 8, 5, 4096, 900, None),
    ]


def test_a_command_line_nobody_could_read_is_null(ask: Ask) -> None:
    seen = window(processes=[process(200, SECOND, comm="", cmdline="")])
    assert ask("SELECT comm, cmdline FROM processes", seen) == [{"comm": None, "cmdline": None}]
