from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingero.model import layout
from ingero.model.layout import CallFlag, GilMark, WakerKind, Why
from ingero.model.window import UNSAMPLED, Container, Unwatchable
from tests.builders import (
    EPOCH_NS,
    NUMBERS,
    SECOND,
    block,
    call,
    culprit,
    oom,
    operation,
    process,
    records,
    retransmit,
    wait,
    window,
    xid,
)

Ask = Callable[..., list[dict[str, Any]]]


def test_a_call_appears_in_events_with_all_it_carries(ask: Ask) -> None:
    (row,) = ask(
        "SELECT * FROM events WHERE source = 1",
        window(
            calls=call(
                "cudaMemcpy",
                7_000,
                at_ns=5,
                tid=101,
                bytes=4096,
                args=(1, 2, 4096, 1),
                gpu_id=3,
                weight=10,
                cgroup_id=77,
            ),
            processes=[process(rank=4, local_rank=0, world_size=8)],
        ),
    )
    assert row == {
        "id": "gpu-node-01:2",
        "node": "gpu-node-01",
        "timestamp": EPOCH_NS + 5,
        "pid": 100,
        "tid": 101,
        "comm": "python",
        "source": 1,
        "op": "cudaMemcpy",
        "duration": 7_000,
        "gpu_id": 3,
        "arg0": 4096,
        "arg1": 2,
        "ret_code": 0,
        "stack_hash": None,
        "cgroup_id": 77,
        "rank": 4,
        "local_rank": 0,
        "world_size": 8,
        "weight": 10,
    }


def test_unknown_is_null_never_zero(ask: Ask) -> None:
    (row,) = ask("SELECT * FROM cuda_events", window(calls=call("cudaLaunchKernel")))
    unknown = ("gpu_id", "bytes", "stream", "direction", "caller", "kernel_name", "cgroup_id", "stack_hash")
    assert {name: row[name] for name in unknown} == dict.fromkeys(unknown)


def test_the_default_stream_is_zero_not_unknown(ask: Ask) -> None:
    (row,) = ask("SELECT stream FROM cuda_events", window(calls=call(stream=0)))
    assert row["stream"] == 0


@pytest.mark.parametrize(
    "kind, direction", [(0, "HtoH"), (1, "HtoD"), (2, "DtoH"), (3, "DtoD"), (4, None), (9, None)]
)
def test_the_direction_of_a_copy_comes_from_its_argument(ask: Ask, kind: int, direction: str | None) -> None:
    garbage = 0xABCD << 32  # an int argument leaves the upper half of the register as it was
    (row,) = ask(
        "SELECT direction FROM cuda_events", window(calls=call("cudaMemcpy", args=(1, 2, 3, kind | garbage)))
    )
    assert row["direction"] == direction


def test_the_direction_of_a_copy_comes_from_its_name(ask: Ask) -> None:
    (row,) = ask(
        "SELECT direction, layer FROM cuda_events", window(calls=call("cuMemcpyHtoDAsync_v2", bytes=1))
    )
    assert row == {"direction": "HtoD", "layer": "driver"}


def test_callers_are_told_apart(ask: Ask) -> None:
    flags = (CallFlag.CALL_FROM_RUNTIME, CallFlag.CALL_DIRECT, 0)
    rows = ask(
        "SELECT caller FROM cuda_events", window(calls=[call("cuLaunchKernel", flags=int(f)) for f in flags])
    )
    assert [row["caller"] for row in rows] == ["runtime", "direct", None]


def test_calls_has_one_row_per_application_call_and_nccl_too(ask: Ask) -> None:
    calls = [
        call("cudaLaunchKernel"),
        call("cuLaunchKernel", nested=True),
        call("ncclAllReduce"),
        call("cudaGraphLaunch"),
    ]
    rows = ask("SELECT layer FROM calls", window(calls=calls))
    assert [row["layer"] for row in rows] == ["runtime", "nccl", "graph"]


def test_nccl_calls_are_no_cuda_events(ask: Ask) -> None:
    assert ask("SELECT * FROM cuda_events", window(calls=call("ncclAllReduce"))) == []


def test_nested_calls_are_cuda_events(ask: Ask) -> None:
    assert len(ask("SELECT * FROM cuda_events", window(calls=call("cuLaunchKernel", nested=True)))) == 1


def test_the_time_split_of_a_call_and_why_it_was_stored_are_kept(ask: Ask) -> None:
    time = {"gpu_wait": 900, "runqueue": 100}
    seen = window(calls=call("cudaStreamSynchronize", 1_000, time=time, why=int(Why.WHY_SLOW)))
    rows = ask("SELECT c.id, c.bucket, c.ns, e.why FROM call_time c CROSS JOIN event e", seen)
    assert {row["bucket"]: row["ns"] for row in rows} == time
    assert rows[0]["why"] == int(Why.WHY_SLOW)


def test_a_record_with_a_number_nobody_knows_is_a_loss_not_a_row(ask: Ask) -> None:
    foreign = call()
    foreign["op"] = 999
    seen = window(calls=records(call(), foreign))
    assert ask("SELECT reason, count FROM losses", seen) == [{"reason": "unknown_operation", "count": 1}]


def test_waits_are_host_events_named_by_their_bucket(ask: Ask) -> None:
    waits = [
        wait("disk_wait", 3_000_000, syscall=0, waker_kind=int(WakerKind.WAKER_IRQ_BLOCK), waker_pid=9),
        wait("runqueue"),
        wait("lock_wait", syscall=202, waker_kind=int(WakerKind.WAKER_TASK), waker_pid=55),
    ]
    rows = ask("SELECT source, op, duration, arg0, arg1 FROM events WHERE pid = 100", window(waits=waits))
    assert [(r["op"], r["arg0"], r["arg1"]) for r in rows] == [
        ("disk_wait", None, 0),
        ("runqueue", None, None),
        ("lock_wait", 55, 202),
    ]
    assert rows[0]["duration"] == 3_000_000
    assert {r["source"] for r in rows} == {3}


def test_block_requests_retransmits_kills_and_gpu_faults_are_events(ask: Ask) -> None:
    seen = window(
        blocks=[block(write=kind, sector=9, size_bytes=512) for kind in range(4)],
        tcp=retransmit(dport=29500),
        ooms=oom(),
        xids=xid(79),
    )
    rows = ask("SELECT source, op, pid, comm, arg0, arg1 FROM events ORDER BY rowid", seen)
    assert [(r["source"], r["op"]) for r in rows] == [
        (5, "read"),
        (5, "write"),
        (5, "discard"),
        (5, "flush"),
        (6, "retransmit"),
        (3, "oom_kill"),
        (3, "xid"),
    ]
    assert (rows[0]["arg0"], rows[0]["arg1"]) == (9, 512)
    assert (rows[4]["pid"], rows[4]["comm"]) == (
        None,
        None,
    )  # softirq: whoever was interrupted is not the owner
    assert rows[6]["arg0"] == 79


def test_addresses_of_retransmits_are_readable(ask: Ask) -> None:
    v6 = (0xFE, 0x80, *[0] * 13, 1)
    rows = ask("SELECT remote_address FROM tcp_detail", window(tcp=[retransmit(), retransmit(address=v6)]))
    assert [row["remote_address"] for row in rows] == ["10.0.0.1", "fe80::1"]


def test_names_of_hostile_processes_are_cleaned(ask: Ask) -> None:
    (row,) = ask("SELECT comm FROM events", window(calls=call(comm=b"\x1b[2Jevil\xff\n")))
    assert row["comm"] == "evil\ufffd"
    (row,) = ask("SELECT message FROM xid_detail", window(xids=xid(message=b"a\x1b[31mb\0junk")))
    assert row["message"] == "ab"


TENANT = Container(77, "/kubepods/x", "c0ffee" * 10, "containerd", "train-0", "team-a", None)


def test_the_queries_of_the_articles_run_as_printed(ask: Ask) -> None:
    seen = window(
        calls=[
            call("cudaLaunchKernel", 2_000_000, cgroup_id=77),
            call("cuLaunchKernel", 1_000_000, cgroup_id=77),
            call("ncclAllReduce", 3_000_000, cgroup_id=77),
            call("cudaFree"),
        ],
        waits=wait("runqueue", 18_400_000),
        containers=[TENANT],
    )
    assert ask(
        """-- top-N cuda kernels by total time per container
SELECT container_id,
       kernel_name,
       COUNT(*)                AS launches,
       SUM(duration_ns)/1e6    AS total_ms
  FROM cuda_events e
  JOIN containers  c ON c.cgroup_id = e.cgroup_id
 GROUP BY container_id, kernel_name
 ORDER BY total_ms DESC
 LIMIT 20;
""",
        seen,
    ) == [{"container_id": "c0ffee" * 10, "kernel_name": None, "launches": 2, "total_ms": 3.0}]


def test_the_nccl_and_fleet_queries_of_the_articles_run_as_printed(ask: Ask) -> None:
    seen = window(
        calls=[call("ncclAllReduce", 3_000_000, cgroup_id=77), call("cuLaunchKernel", 5_000, cgroup_id=77)],
        waits=wait("runqueue", 18_400_000),
        containers=[TENANT],
    )
    assert ask(
        """-- per-tenant NCCL cost
SELECT container_id,
       op,
       COUNT(*)                AS calls,
       AVG(duration_ns)/1e6    AS avg_ms,
       MAX(duration_ns)/1e6    AS p100_ms
  FROM nccl_events e
  JOIN containers  c ON c.cgroup_id = e.cgroup_id
 GROUP BY container_id, op;
""",
        seen,
    ) == [{"container_id": "c0ffee" * 10, "op": "ncclAllReduce", "calls": 1, "avg_ms": 3.0, "p100_ms": 3.0}]
    rows = ask("""SELECT node, source, count(*) as cnt, avg(duration)/1000 as avg_us
     FROM events GROUP BY node, source""")
    assert [(r["node"], r["source"], r["cnt"], r["avg_us"]) for r in rows] == [
        ("gpu-node-01", 3, 1, 18400.0),
        ("gpu-node-01", 4, 1, 5.0),
        ("gpu-node-01", 9, 1, 3000.0),
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    took_ns=st.integers(0, 2**64 - 1),
    at_ns=st.integers(0, 2**60),
    size=st.none() | st.integers(0, 2**64 - 1),
    gpu_id=st.integers(-1, 2**31 - 1),
    ret=st.integers(-(2**63), 2**63 - 1),
    weight=st.integers(1, 2**32 - 1),
    args=st.lists(st.integers(0, 2**64 - 1), max_size=6),
    stream=st.none() | st.integers(0, 2**64 - 1),
)
def test_any_record_survives_the_way_through_the_database(
    tmp_path_factory: pytest.TempPathFactory,
    took_ns: int,
    at_ns: int,
    size: int | None,
    gpu_id: int,
    ret: int,
    weight: int,
    args: list[int],
    stream: int | None,
) -> None:
    from ingero.store.reader import Reader
    from ingero.store.writer import Writer
    from tests.builders import OPERATIONS, fixed_clock

    path = tmp_path_factory.mktemp("any") / "x.db"
    record = call(
        "cudaMemcpy",
        took_ns,
        at_ns=at_ns,
        bytes=size,
        gpu_id=gpu_id,
        ret=ret,
        weight=weight,
        args=args,
        stream=stream,
    )
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        writer.write(window(calls=record))
    with Reader(path) as reader:
        (row,) = reader.rows(
            "SELECT timestamp_ns, duration_ns, gpu_id, ret, weight, bytes, stream FROM cuda_events"
        )
    signed = [None if v is None else v - 2**64 if v >= 2**63 else v for v in (size, stream)]
    assert row == (
        EPOCH_NS + at_ns,
        min(took_ns, 2**63 - 1),
        None if gpu_id < 0 else gpu_id,
        ret,
        weight,
        None if size is None or size >= 2**63 else size,
        signed[1],
    )


def test_calls_after_the_last_sample_are_added_to_the_last_record_of_their_kind(ask: Ask) -> None:
    left = np.array([(100, NUMBERS["cuLaunchKernel"], 1, 7), (100, NUMBERS["cudaMemcpy"], 0, 2)], UNSAMPLED)
    from_runtime = int(CallFlag.CALL_FROM_RUNTIME)
    rows = ask(
        "SELECT op, SUM(weight) AS calls, COUNT(*) AS stored FROM cuda_events GROUP BY op ORDER BY op",
        window(
            calls=records(
                call("cuLaunchKernel", at_ns=1, weight=5, flags=from_runtime),
                call("cuLaunchKernel", at_ns=2, weight=5, flags=from_runtime),
                call("cuLaunchKernel", at_ns=3, pid=101, weight=5, flags=from_runtime),
            )
        ),
        window(1_000_000_000, unsampled=left),
    )
    assert rows == [{"op": "cuLaunchKernel", "calls": 22, "stored": 3}]


def test_a_process_that_became_another_program_is_an_event(ask: Ask) -> None:
    became = np.zeros(1, layout.PROCESS)
    became[0]["h"]["pid"], became[0]["h"]["comm"], became[0]["parent_pid"] = 100, b"train", 7
    rows = ask("SELECT source, op, pid, comm, arg0 FROM events WHERE op = 'exec'", window(execs=became))
    assert rows == [{"source": 3, "op": "exec", "pid": 100, "comm": "train", "arg0": 7}]


def test_bystanders_have_a_view_of_their_own_and_no_events(ask: Ask) -> None:
    noisy = process(200, SECOND, comm="stress", cmdline="stress \x1b[2J--cpu 8", target=False, parent_pid=1)
    both = window(processes=[process()], bystanders=[noisy], culprits=culprit(pid=200))
    assert [row["pid"] for row in ask("SELECT pid FROM processes", both)] == [100]
    assert ask("SELECT * FROM bystanders") == [
        {
            "node": "gpu-node-01", "pid": 200, "start_ns": EPOCH_NS + SECOND, "comm": "stress",
            "cmdline": "stress --cpu 8", "cgroup_id": 0, "parent_pid": 1, "uid": 1000,
        }
    ]  # fmt: skip
    assert ask("SELECT * FROM events WHERE pid = 200") == []
    named = "SELECT b.cmdline FROM culprits c JOIN bystanders b ON b.node = c.node AND b.pid = c.pid"
    assert ask(named) == [{"cmdline": "stress --cpu 8"}]


def test_a_bystander_that_is_traced_later_is_a_target_and_stays_one(ask: Ask) -> None:
    stranger = process(200, SECOND, target=False, cmdline="stress")
    traced = process(200, SECOND, cmdline="python train.py")
    windows = [
        window(bystanders=[stranger]),
        window(SECOND, processes=[traced]),
        window(2 * SECOND, bystanders=[stranger]),
    ]
    assert ask("SELECT pid, cmdline FROM processes", *windows) == [{"pid": 200, "cmdline": "python train.py"}]
    assert ask("SELECT * FROM bystanders") == []


def test_waits_say_whether_they_were_for_the_gil(ask: Ask) -> None:
    marks = [int(GilMark.GIL_UNKNOWN), int(GilMark.GIL_NO), int(GilMark.GIL_YES)]
    rows = ask("SELECT gil FROM wait_detail ORDER BY event_id", window(waits=[wait(gil=g) for g in marks]))
    assert [row["gil"] for row in rows] == [None, 0, 1]


def test_what_is_not_watched_is_kept_once_with_its_reason(ask: Ask) -> None:
    unseen = Unwatchable(100, "gil", "a free-threaded Python\x1b[2J has no interpreter lock")
    rows = ask(
        "SELECT pid, what, why FROM not_watched",
        window(not_watched=[unseen]),
        window(SECOND, not_watched=[unseen]),
    )
    assert rows == [{"pid": 100, "what": "gil", "why": "a free-threaded Python has no interpreter lock"}]


def test_whether_a_process_serves_others_is_kept_and_unknown_is_null(ask: Ask) -> None:
    seen = [process(1), process(2, listens=False), process(3, listens=True)]
    rows = ask("SELECT listens FROM process ORDER BY pid", window(processes=seen))
    assert [row["listens"] for row in rows] == [None, 0, 1]


def test_a_retransmit_names_the_target_at_the_other_end(ask: Ask) -> None:
    sent = window(tcp=[retransmit(pid=100), retransmit(pid=200, peer_pid=100)])
    rows = ask("SELECT peer_pid FROM tcp_detail ORDER BY event_id", sent)
    assert [row["peer_pid"] for row in rows] == [None, 100]


def test_a_garbage_collection_is_an_event_of_the_host_and_no_call(ask: Ask) -> None:
    both = window(calls=[call(), call("gc_collect_main", 7_000_000, args=(1, 2))])
    (row,) = ask("SELECT source, op, duration, arg0, arg1 FROM events WHERE source = 3", both)
    assert tuple(row.values()) == (3, "gc_collect_main", 7_000_000, None, None)
    for view in ("calls", "cuda_events"):
        assert [each["op"] for each in ask(f"SELECT op FROM {view}")] == ["cudaLaunchKernel"]
    assert ask("SELECT * FROM nccl_events") == []


def test_garbage_collections_are_counted_among_the_operations(ask: Ask) -> None:
    (row,) = ask(
        "SELECT layer, op, count, sum_ns FROM operations",
        window(operations=operation("gc_collect_main", [100, 2_000_000])),
    )
    assert tuple(row.values()) == ("python", "gc_collect_main", 2, 2_000_100)
