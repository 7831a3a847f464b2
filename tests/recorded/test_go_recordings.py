"""Recordings made by the Go implementation on real GPUs, read as our own.

What each of them holds was measured independently; see what the product must and
must not conclude from them: a read at start-up, sleeps that are no trouble, a main
thread busy with work of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from ingero.serve.cli.main import main
from ingero.store import imported
from ingero.store.recording import connect
from tests.go_databases import ask, losses, statistics, time_of

STARVED = "pytorch-dataloader-starvation.db"
NODES = {f"gpu-node-0{n}": f"sample-gpu-node-0{n}.db" for n in (1, 2, 3)}
FILES = (STARVED, *NODES.values())
# events, stacks, snapshots, command names, cgroups
ROWS = {
    STARVED: (3807, 21, 40, 13, 7),
    "sample-gpu-node-01.db": (200, 8, 1, 10, 1),
    "sample-gpu-node-02.db": (200, 1, 2, 3, 1),
    "sample-gpu-node-03.db": (200, 1, 2, 3, 1),
}
MS, SECOND = 1_000_000, 1_000_000_000


@pytest.fixture(params=FILES)
def file(request: pytest.FixtureRequest, shared_dir: Path) -> Iterator[Path]:
    """One recording, which must be byte for byte the same afterwards."""
    path = shared_dir / "data" / request.param
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    yield path
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


@pytest.fixture
def starved(shared_dir: Path) -> Path:
    return shared_dir / "data" / STARVED


def node(shared_dir: Path, number: int) -> Path:
    return shared_dir / "data" / NODES[f"gpu-node-0{number}"]


def count(path: Path, table: str) -> int:
    return int(ask(path, f"SELECT COUNT(*) AS n FROM {table}")[0]["n"])


def test_every_row_comes_over(file: Path) -> None:
    events, stacks, samples, names, cgroups = ROWS[file.name]
    assert count(file, "events") == events
    assert count(file, "(SELECT DISTINCT stack_hash FROM stacks)") == stacks
    assert count(file, "system_sample") == samples
    assert count(file, "containers") == cgroups
    named = {row["comm"] for row in ask(file, "SELECT comm FROM processes WHERE comm <> 'swapper'")}
    assert count(file, "processes WHERE comm IS NOT NULL AND pid > 0") == names
    assert "python3" in named
    assert set(losses(file)) <= {"row_not_in_file"}


def test_nothing_is_claimed_that_the_file_cannot_know(file: Path) -> None:
    (known,) = ask(file, "SELECT COUNT(gpu_id) AS gpu, COUNT(rank) AS rank FROM events")
    assert (known["gpu"], known["rank"]) == (0, 0)
    for view in ("culprits", "wakers", "findings", "nccl_events"):
        assert count(file, view) == 0
    buckets = {row["bucket"] for row in ask(file, "SELECT DISTINCT bucket FROM thread_time")}
    allowed = {"cuda_cpu", "host_cpu", "gpu_wait", "disk_wait", "sleep", "unexplained"}
    assert buckets <= allowed  # never runqueue: preemption cannot be told from blocking
    (told,) = ask(file, "SELECT value FROM meta WHERE key LIKE 'not_watched:%'")
    assert {"sched", "culprits", "wakers", "gpu"} <= {each["what"] for each in json.loads(told["value"])}


def test_time_off_the_core_lies_outside_every_call(file: Path) -> None:
    """The instant of a switch is its end: taken as its begin, a thread would call while it is away."""
    overlap = ask(
        file,
        "SELECT COUNT(*) AS n FROM events w JOIN cuda_events c ON c.tid = w.tid"
        " WHERE w.op IN ('sleep', 'disk_wait', 'unexplained') AND c.timestamp_ns > w.timestamp"
        " AND c.timestamp_ns < w.timestamp + w.duration",
    )
    assert overlap[0]["n"] == 0


def test_time_off_the_core_does_not_overlap_itself(file: Path) -> None:
    waits = ask(
        file,
        "SELECT tid, timestamp AS at, duration AS ns FROM events"
        " WHERE op IN ('sleep', 'disk_wait', 'unexplained') ORDER BY tid, timestamp",
    )
    for one, other in pairwise(waits):
        assert one["tid"] != other["tid"] or one["at"] + one["ns"] <= other["at"]


def test_each_thread_sums_to_the_time_it_was_seen(file: Path) -> None:
    threads = ask(file, "SELECT tid, SUM(ns) AS ns FROM thread_time GROUP BY tid")
    assert threads
    for thread in threads:
        (seen,) = ask(
            file,
            "SELECT MAX(timestamp + duration) - MIN(timestamp) AS ns FROM events"
            f" WHERE tid = {thread['tid']} AND source IN (1, 4) OR tid = {thread['tid']} AND source = 3"
            " AND op IN ('sleep', 'disk_wait', 'unexplained')",
        )
        assert abs(thread["ns"] - seen["ns"]) <= 1


def test_the_starved_job_has_true_counts(starved: Path) -> None:
    found = statistics(starved)
    exact = {op: (each.count, each.exact) for op, each in found.items()}
    assert exact["sched_switch"] == (191_835, True)
    assert exact["mm_page_alloc"] == (1_430_581, True)
    assert exact["cudaLaunchKernel"] == (30, True)
    assert exact["cudaMemcpyAsync"] == (21, True)
    assert exact["cudaMalloc"] == (7, True)
    assert found["mm_page_alloc"].bytes == 5_861_011_456
    assert found["cudaMalloc"].bytes == 6_887_047_168
    assert found["cudaMemcpyAsync"].bytes == 6_020_708_392
    runtime = sum(each.sum_ns for each in found.values() if each.layer == "runtime")
    assert 0.74 * SECOND < runtime < 0.76 * SECOND
    assert found["cudaLaunchKernel"].max_ns == 25_799_899
    assert losses(starved) == {"row_not_in_file": 37}


def test_the_starved_jobs_main_thread_works_itself(starved: Path) -> None:
    time = time_of(starved, 2233)
    whole = sum(time.values())
    assert 76 * SECOND < whole < 78 * SECOND
    assert time["host_cpu"] > 0.95 * whole
    assert 0.65 * SECOND < time["cuda_cpu"] < 0.75 * SECOND
    assert "sleep" not in time  # its waits of 5.1 ms are turns at the GIL
    assert "disk_wait" not in time
    assert ask(starved, "SELECT DISTINCT feeder FROM thread_second") == [{"feeder": 1}]


def test_the_starved_jobs_workers_are_known_by_name_and_parent(starved: Path) -> None:
    rows = ask(starved, "SELECT pid, parent_pid FROM process WHERE comm = 'pt_data_worker' ORDER BY pid")
    assert [(row["pid"], row["parent_pid"]) for row in rows] == [
        (2255, 2233),
        (2256, 2233),
        (2257, 2233),
        (2267, 2254),
    ]


def test_node_1_waits_for_its_disk(shared_dir: Path) -> None:
    path = node(shared_dir, 1)
    time = time_of(path, 1887)
    waits = ask(path, "SELECT op, COUNT(*) AS n FROM events WHERE source = 3 GROUP BY op ORDER BY op")
    assert [(row["op"], row["n"]) for row in waits] == [("disk_wait", 98), ("unexplained", 1)]
    assert 74 * MS < time["disk_wait"] < 76 * MS
    assert sum(time.values()) == time["disk_wait"] + time["unexplained"]
    assert ask(path, "SELECT pid, count, bytes FROM io_second ORDER BY bytes DESC LIMIT 1") == [
        {"pid": 1887, "count": 98, "bytes": 6_443_008}
    ]
    assert losses(path) == {"row_not_in_file": 3537}


@pytest.mark.parametrize(("number", "pid", "sleeps"), [(2, 4599, 62), (3, 4883, 58)])
def test_nodes_2_and_3_sleep_on_purpose(shared_dir: Path, number: int, pid: int, sleeps: int) -> None:
    path = node(shared_dir, number)
    waits = ask(path, "SELECT op, COUNT(*) AS n FROM events WHERE source = 3 GROUP BY op")
    assert waits == [{"op": "sleep", "n": sleeps}]
    time = time_of(path, pid)
    assert time["sleep"] > 0.9 * sum(time.values())
    assert "disk_wait" not in time  # the writes beside them are the journal's and the tool's own
    issuers = {
        row["comm"]
        for row in ask(path, "SELECT s.text AS comm FROM io_second JOIN string s ON s.id = comm_id")
    }
    assert issuers
    assert all(comm.startswith("jbd2/") for comm in issuers)


@pytest.mark.parametrize(("name", "number"), [(name, at) for at, name in enumerate(NODES, 1)])
def test_ids_and_recordings_keep_their_node(shared_dir: Path, name: str, number: int) -> None:
    path = node(shared_dir, number)
    (recording,) = ask(path, "SELECT r.*, n.name AS node FROM recording r JOIN node n ON n.id = r.node_id")
    assert (recording["node"], recording["version"], recording["cores"]) == (name, "go 0.9", 4)
    assert 6 * SECOND < recording["ended_ns"] - recording["started_ns"] < 9 * SECOND
    assert all(row["id"].startswith(f"{name}:") for row in ask(path, "SELECT id FROM events"))
    (call,) = ask(path, "SELECT * FROM events ORDER BY id LIMIT 1")
    first = {1: "gpu-node-01:3538", 2: "gpu-node-02:335", 3: "gpu-node-03:363"}[number]
    assert call["id"] == first


def test_query_answers_on_the_command_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "-d", str(file), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {row["op"] for row in answer["operations"]} >= {"sched_switch"}
    assert main(["query", "-d", str(file), "--json", "SELECT COUNT(*) AS n FROM events"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [{"n": ROWS[file.name][0]}]
    assert main(["query", "-d", str(file), "DELETE FROM event"]) == 2
    assert "only reading is allowed" in capsys.readouterr().err


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write anywhere: look as somebody who may not."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def test_a_read_only_directory_is_enough(file: Path) -> None:
    events = count(file, "events")  # also loads what only root can
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / file.name
        shutil.copyfile(file, copy)
        copy.chmod(0o444)
        Path(name).chmod(0o555)
        with as_nobody():
            assert not os.access(name, os.W_OK, effective_ids=True)
            assert count(copy, "events") == events
        assert [each.name for each in Path(name).iterdir()] == [file.name]
        Path(name).chmod(0o755)


def test_all_of_them_go_into_one_database(shared_dir: Path, tmp_path: Path) -> None:
    ours = connect(tmp_path / "cluster.db")
    for name in FILES:
        assert imported.convert(shared_dir / "data" / name, ours, node="rtx-4090")
    rows = ours.execute("SELECT node, COUNT(*) FROM events GROUP BY node ORDER BY node").fetchall()
    assert rows == [("gpu-node-01", 200), ("gpu-node-02", 200), ("gpu-node-03", 200), ("rtx-4090", 3807)]
    assert ours.execute("SELECT COUNT(DISTINCT stack_hash) FROM stacks").fetchone() == (30,)
    ours.close()
