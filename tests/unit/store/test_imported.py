"""Recordings of the Go implementation, small ones made here: what comes over and what is not claimed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from ingero.errors import StoreVersionError
from ingero.store import imported
from ingero.store.reader import Reader
from ingero.store.recording import connect
from tests.go_databases import NODE, SECOND, START_NS, VERSIONS, GoRecording, ask, losses, statistics

MS = 1_000_000
US = 1_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "go.db"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_read_and_keeps_ids_instants_and_arguments(path: Path, version: str) -> None:
    go = GoRecording(path, version).session()
    go.call(7, at_ns=SECOND, took_ns=40 * US, arg0=4096, arg1=1, cgroup_id=77, stack_hash=-5)
    before = go.close().read_bytes()
    (row,) = ask(path, "SELECT * FROM events")
    node = "unknown" if version == "0.8" else NODE
    assert row["id"] == f"{node}:1"
    assert (row["timestamp"], row["duration"], row["op"]) == (START_NS + SECOND, 40_000, "cudaMemcpyAsync")
    assert (row["source"], row["arg0"], row["arg1"], row["ret_code"]) == (1, 4096, 1, 0)
    assert (row["stack_hash"], row["cgroup_id"], row["gpu_id"]) == (-5, 77, None)
    (call,) = ask(path, "SELECT * FROM calls")
    assert (call["layer"], call["bytes"], call["direction"], call["caller"]) == (
        "runtime",
        4096,
        "HtoD",
        None,
    )
    (recording,) = ask(path, "SELECT * FROM recording")
    assert (recording["version"], recording["cores"]) == (f"go {version}", 8)
    assert (recording["started_ns"], recording["ended_ns"]) == (START_NS, START_NS + 10 * SECOND)
    assert path.read_bytes() == before


def test_a_version_10_file_has_command_names_of_its_own(path: Path) -> None:
    go = GoRecording(path, "0.10").session()
    go.call(3, at_ns=0, took_ns=US, comm="python\x1b[31m").call(
        3, at_ns=MS, took_ns=US, comm="worker", tid=101
    )
    rows = ask(go.close(), "SELECT comm FROM events ORDER BY timestamp")
    assert [row["comm"] for row in rows] == ["python", "worker"]
    assert ask(path, "SELECT comm FROM processes") == [{"comm": "python"}]


def test_a_newer_file_is_refused_and_says_so(path: Path) -> None:
    go = GoRecording(path).session()
    go.connection.execute("UPDATE schema_info SET value = '0.11'")
    with pytest.raises(StoreVersionError, match=r"newer Go implementation \(schema 0\.11"):
        Reader(go.path)
    go.connection.execute("UPDATE schema_info SET value = '0.10'")
    go.connection.execute("PRAGMA user_version = 11")
    with pytest.raises(StoreVersionError, match="schema 11"):
        Reader(go.close())


def test_it_is_never_written_to_and_never_recorded_into(path: Path) -> None:
    go = GoRecording(path).session()
    before = go.close().read_bytes()
    with pytest.raises(StoreVersionError, match="not an ingero database"):
        connect(path)
    with Reader(path) as reader, pytest.raises(sqlite3.OperationalError):
        reader.connection.execute("DELETE FROM event")
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_file_still_being_written_is_read_as_it_is_now(path: Path) -> None:
    go = GoRecording(path)
    go.connection.execute("PRAGMA journal_mode = WAL")
    go.session(stopped_at=0).call(3, at_ns=SECOND, took_ns=US)
    assert len(ask(path, "SELECT id FROM events")) == 1
    (recording,) = ask(path, "SELECT * FROM recording")
    assert (recording["ended_ns"], recording["last_ns"]) == (None, START_NS + SECOND)
    go.call(3, at_ns=2 * SECOND, took_ns=US)
    assert len(ask(path, "SELECT id FROM events")) == 2
    go.close()


def test_a_large_file_is_converted_on_disk_and_leaves_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imported, "MEMORY_BYTES", 0)
    path = GoRecording(path).session().call(3, at_ns=0, took_ns=US).close()
    assert len(ask(path, "SELECT id FROM events")) == 1
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_block_requests_begin_before_they_end_and_have_bytes(path: Path) -> None:
    go = GoRecording(path).session().block(1, at_ns=SECOND, took_ns=MS, arg0=24, arg1=9000)
    (row,) = ask(go.close(), "SELECT * FROM events")
    assert (row["op"], row["timestamp"], row["duration"]) == ("read", START_NS + SECOND, MS)
    assert (row["arg0"], row["arg1"], row["ret_code"]) == (9000, 24 * 512, None)
    (io,) = ask(path, "SELECT * FROM io_second")
    assert (io["bytes"], io["ns"], io["count"], io["start_ns"]) == (24 * 512, MS, 1, START_NS + SECOND)


def test_the_tools_own_writes_are_rows_but_not_the_machines_trouble(path: Path) -> None:
    go = (
        GoRecording(path).session().block(2, at_ns=0, took_ns=MS, pid=55).block(2, at_ns=0, took_ns=MS, pid=9)
    )
    go.insert("process_names", pid=55, name="ingero")
    go.insert("process_names", pid=9, name="jbd2/nvme0n1")
    assert len(ask(go.close(), "SELECT id FROM events")) == 2
    assert ask(path, "SELECT pid FROM io_second") == [{"pid": 9}]
    assert ask(path, "SELECT agent_pid FROM recording") == [{"agent_pid": 55}]
    assert ask(path, "SELECT * FROM thread_time") == []


def test_ranks_names_and_containers_belong_to_processes(path: Path) -> None:
    go = GoRecording(path).session()
    go.call(3, at_ns=0, took_ns=US, cgroup_id=77, rank=3, local_rank=1, world_size=8)
    go.insert("process_names", pid=100, name="python3")
    go.insert("cgroup_metadata", cgroup_id=77, container_id="c0ffee", pod_name="train-0", namespace="ml")
    (row,) = ask(go.close(), "SELECT * FROM events")
    assert (row["comm"], row["rank"], row["local_rank"], row["world_size"]) == ("python3", 3, 1, 8)
    (box,) = ask(path, "SELECT * FROM containers")
    assert (box["cgroup_id"], box["container_id"], box["pod"], box["namespace"]) == (
        77, "c0ffee", "train-0", "ml",
    )  # fmt: skip
    (process,) = ask(path, "SELECT * FROM processes")
    assert (process["cgroup_id"], process["start_ns"], process["uid"]) == (77, None, None)


def test_new_tasks_are_clones_because_threads_count_among_them(path: Path) -> None:
    go = GoRecording(path).session().event(3, 7, SECOND, pid=100, arg1=101)
    go.event(3, 6, 2 * SECOND, pid=100, tid=103).event(3, 6, 3 * SECOND, pid=101)
    rows = ask(go.close(), "SELECT op, pid, tid, arg0, duration FROM events ORDER BY timestamp")
    assert [tuple(row.values()) for row in rows] == [
        ("clone", 100, 100, 101, None),
        ("thread_exit", 100, 103, 0, None),
        ("exit", 101, 101, 0, None),
    ]
    (child,) = ask(path, "SELECT * FROM process WHERE pid = 101")
    assert (child["parent_pid"], child["start_ns"]) == (100, START_NS + SECOND)
    assert child["end_ns"] == START_NS + 3 * SECOND
    assert ask(path, "SELECT end_ns FROM processes WHERE pid = 100") == [{"end_ns": None}]


def test_stacks_become_python_and_native_frames(path: Path) -> None:
    go = GoRecording(path).session()
    frames = [
        {"i": "0x7f00", "f": "libcudart.so.12"},
        {"s": "cudaMalloc+0x1f3", "f": "libcudart.so.12"},
        {"s": "_PyEval", "f": "python3", "pf": "train.py", "pfn": "forward", "pl": 142},
        {"s": "main", "f": "main.c", "l": 7},
    ]
    go.insert("stack_traces", hash=-9, ips="", frames=json.dumps(frames))
    rows = ask(go.close(), "SELECT kind, function, file, line, module FROM stacks ORDER BY depth")
    assert [tuple(row.values()) for row in rows] == [
        ("native", None, None, None, "libcudart.so.12"),
        ("native", "cudaMalloc", None, None, "libcudart.so.12"),
        ("python", "forward", "train.py", 142, None),
        ("native", "main", "main.c", 7, None),
    ]


def test_samples_have_units_and_the_first_has_no_cpu_share(path: Path) -> None:
    go = GoRecording(path).session()
    for at in (1, 2):
        values = {
            "cpu_pct": 50.0 * (at - 1),
            "mem_pct": 25.0,
            "mem_avail": 100,
            "swap_mb": 2,
            "load_avg": 1.5,
        }
        go.insert("system_snapshots", timestamp=START_NS + at * SECOND, **values)
    first, second = ask(go.close(), "SELECT * FROM system_sample ORDER BY at_ns")
    assert (first["cpu_share"], second["cpu_share"], second["memory_share"]) == (None, 0.5, 0.25)
    assert (second["memory_available_bytes"], second["swap_bytes"]) == (100 << 20, 2 << 20)
    assert (second["load1"], second["cores"]) == (1.5, 8)


def test_driver_calls_inside_runtime_calls_are_not_calls_of_the_program(path: Path) -> None:
    go = GoRecording(path).session()
    go.call(5, at_ns=10 * US, took_ns=20 * US, source=4).call(1, at_ns=0, took_ns=50 * US)
    go.call(1, at_ns=MS, took_ns=US, source=4)
    rows = ask(go.close(), "SELECT op, caller FROM cuda_events ORDER BY timestamp_ns")
    assert [tuple(row.values()) for row in rows] == [
        ("cudaMalloc", None),
        ("cuMemAlloc", "runtime"),
        ("cuLaunchKernel", None),
    ]
    assert {row["op"] for row in ask(path, "SELECT op FROM calls")} == {"cudaMalloc", "cuLaunchKernel"}


def test_counts_are_those_of_the_aggregates_not_of_stored_rows(path: Path) -> None:
    go = GoRecording(path).session(started_at=START_NS + 5 * SECOND)
    go.call(3, at_ns=6 * SECOND, took_ns=900 * US)
    go.aggregate(1, 3, 5000, 1, sum_dur=40 * MS, min_dur=5 * US, max_dur=900 * US)
    go.aggregate(3, 3, 777, 0, sum_arg0=1 << 30)
    found = statistics(go.close())
    launch, pages = found["cudaLaunchKernel"], found["mm_page_alloc"]
    assert (launch.count, launch.exact, launch.sum_ns, launch.max_ns) == (5000, True, 40 * MS, 900 * US)
    assert launch.p50_ns is None  # the one stored is stored because it was slow
    assert (pages.count, pages.bytes, pages.sum_ns, pages.max_ns) == (777, 1 << 30, 0, None)


def test_rows_that_are_all_there_were_give_percentiles_and_seconds(path: Path) -> None:
    go = GoRecording(path).session()
    for second in range(3):
        go.call(5, at_ns=second * SECOND, took_ns=(second + 1) * MS)
    go.aggregate(1, 5, 3, 3, sum_dur=6 * MS, min_dur=MS, max_dur=3 * MS)
    stats = statistics(go.close())["cudaStreamSynchronize"]
    assert (stats.count, stats.exact, stats.sum_ns) == (3, True, 6 * MS)
    assert 1.7 * MS < stats.p50_ns < 2.3 * MS
    rows = ask(path, "SELECT bucket_start_ns FROM operations ORDER BY 1")
    assert [row["bucket_start_ns"] - START_NS for row in rows] == [0, SECOND, 2 * SECOND]


def test_without_aggregates_counts_are_marked_as_not_exact(path: Path) -> None:
    go = GoRecording(path).session().call(3, at_ns=0, took_ns=US)
    stats = statistics(go.close())["cudaLaunchKernel"]
    assert (stats.count, stats.exact) == (1, False)
    (row,) = ask(path, "SELECT value FROM meta WHERE key LIKE 'not_watched:%'")
    assert "operations" in {each["what"] for each in json.loads(row["value"])}


def test_what_was_not_watched_is_told_per_recording(path: Path) -> None:
    go = GoRecording(path).session(kernel="6.17", gpu_model="Tesla T4", flags="stack,record-all")
    go.aggregate(1, 3, 1, 0)
    go.close()
    (recording,) = ask(path, "SELECT id FROM recording")
    told = {
        row["key"]: json.loads(row["value"]) for row in ask(path, "SELECT * FROM meta WHERE key LIKE '%:%'")
    }
    what = {each["what"] for each in told[f"not_watched:{recording['id']}"]}
    assert {"sched", "culprits", "wakers", "memory", "nccl", "gpu"} <= what
    assert not {"calls", "operations"} & what
    source = told[f"source:{recording['id']}"]
    assert (source["tool"], source["kernel"], source["gpu_model"]) == ("go", "6.17", "Tesla T4")


def test_rows_once_numbered_and_no_longer_there_are_a_loss(path: Path) -> None:
    go = GoRecording(path).session()
    go.call(3, at_ns=0, took_ns=US, id=f"{NODE}:500").call(3, at_ns=MS, took_ns=US, id=f"{NODE}:502")
    assert losses(go.close()) == {"row_not_in_file": 500}


def test_several_nodes_in_one_file_stay_apart(path: Path) -> None:
    go = GoRecording(path).session().session(node="other")
    go.call(3, at_ns=0, took_ns=US).call(3, at_ns=0, took_ns=US, id="other:1", node="other")
    go.insert("process_names", pid=100, name="whose")
    go.insert(
        "system_snapshots", timestamp=START_NS, cpu_pct=1, mem_pct=1, mem_avail=1, swap_mb=0, load_avg=0
    )
    rows = ask(go.close(), "SELECT id, comm FROM events ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [(f"{NODE}:1", None), ("other:1", None)]
    assert ask(path, "SELECT * FROM system_sample") == []
    assert losses(path) == {"sample_without_node": 1}


def test_events_are_found_by_time_through_their_ids(path: Path) -> None:
    go = GoRecording(path).session()
    for second in range(5):
        go.call(3, at_ns=second * SECOND, took_ns=US)
    with Reader(go.close()) as reader:
        ((first, last),) = reader.id_ranges(START_NS + 2 * SECOND, START_NS + 3 * SECOND)
        found = reader.rows("SELECT ts_ns FROM event WHERE id BETWEEN ? AND ?", (first, last))
    assert found == [(START_NS + 2 * SECOND,)]


def test_a_file_without_sessions_is_one_recording_of_its_events(path: Path) -> None:
    go = (
        GoRecording(path, "0.8", sessions=None)
        .call(3, at_ns=SECOND, took_ns=US)
        .call(3, at_ns=2 * SECOND, took_ns=1)
    )
    (recording,) = ask(go.close(), "SELECT * FROM recording")
    assert (recording["started_ns"], recording["last_ns"]) == (START_NS + SECOND, START_NS + 2 * SECOND)


def test_a_killed_session_ends_where_the_next_begins(path: Path) -> None:
    go = GoRecording(path).session(stopped_at=0)
    go.session(started_at=START_NS + 20 * SECOND, stopped_at=START_NS + 30 * SECOND)
    go.call(3, at_ns=SECOND, took_ns=US).call(3, at_ns=25 * SECOND, took_ns=US)
    rows = ask(go.close(), "SELECT last_ns, ended_ns FROM recording ORDER BY started_ns")
    assert [(row["last_ns"] - START_NS) // SECOND for row in rows] == [20, 30]
    assert rows[0]["ended_ns"] is None


def test_a_recording_is_added_to_a_database_of_ours_once(path: Path, tmp_path: Path) -> None:
    go = GoRecording(path, "0.8").session().call(3, at_ns=0, took_ns=US).away(MS, MS)
    go.close()
    ours = connect(tmp_path / "ours.db")
    assert imported.convert(path, ours, node="rack-3") is True
    assert imported.convert(path, ours, node="rack-3") is False
    assert ours.execute("SELECT id FROM events ORDER BY 1").fetchall() == [("rack-3:1",), ("rack-3:2",)]
    assert ours.execute("SELECT COUNT(*) FROM recording").fetchone() == (1,)
    assert ours.execute("SELECT next_seq FROM node").fetchone() == (3,)
    ours.close()


def test_adding_works_inside_a_transaction_and_leaves_nothing_when_it_fails(
    path: Path, tmp_path: Path
) -> None:
    GoRecording(path).session().call(3, at_ns=0, took_ns=US).close()
    ours = connect(tmp_path / "ours.db")
    ours.execute("BEGIN")
    imported.convert(path, ours)
    ours.execute("ROLLBACK")
    assert ours.execute("SELECT COUNT(*) FROM event").fetchone() == (0,)
    ours.execute("CREATE TRIGGER no BEFORE INSERT ON event BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(sqlite3.IntegrityError):
        imported.convert(path, ours)
    assert ours.execute("SELECT COUNT(*) FROM node").fetchone() == (0,)
    ours.close()


def test_a_graph_whose_handle_was_not_read_is_not_known(path: Path) -> None:
    go = GoRecording(path).session()
    go.call(4, at_ns=0, took_ns=US, source=8, arg0=0).call(4, at_ns=MS, took_ns=US, source=8, arg0=77)
    rows = ask(go.close(), "SELECT op, arg0 FROM events ORDER BY timestamp")
    assert [(row["op"], row["arg0"]) for row in rows] == [("cudaGraphLaunch", None), ("cudaGraphLaunch", 77)]
