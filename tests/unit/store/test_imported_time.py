"""Where the time of threads went, as far as a recording of the Go implementation can prove it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.go_databases import MINUTE, SECOND, START_NS, GoRecording, ask, time_of

MS = 1_000_000
US = 1_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "go.db"


def test_a_wait_as_long_as_a_read_of_the_thread_is_disk_wait(path: Path) -> None:
    go = GoRecording(path).session(pid_filter="100")
    for step in range(3):
        go.block(1, at_ns=step * 10 * MS, took_ns=800 * US, arg0=8)
        go.away(step * 10 * MS + 4 * US, 810 * US)
    assert time_of(go.close()) == {"disk_wait": 3 * 810 * US, "unexplained": 2 * (10 * MS - 810 * US)}
    (feeder,) = ask(path, "SELECT DISTINCT feeder FROM thread_second")
    assert feeder["feeder"] == 1  # the tool takes only CUDA processes as targets


@pytest.mark.parametrize(
    ("op", "shift", "pid"),
    [(1, 5 * MS, 100), (2, 0, 100), (1, 0, 9)],
    ids=["later", "write", "another process"],
)
def test_a_wait_is_not_blamed_on_other_block_requests(path: Path, op: int, shift: int, pid: int) -> None:
    go = (
        GoRecording(path)
        .session()
        .block(op, at_ns=shift, took_ns=800 * US, pid=pid, arg0=8)
        .away(0, 805 * US)
    )
    assert "disk_wait" not in time_of(go.close())


def test_waits_of_one_length_over_and_over_are_a_timer(path: Path) -> None:
    go = GoRecording(path).session()
    for step in range(10):
        go.away(step * 51 * MS, 50 * MS + 60 * US + step * US)
    assert time_of(go.close())["sleep"] == 10 * (50 * MS + 60 * US) + 45 * US
    assert {row["op"] for row in ask(path, "SELECT op FROM events")} == {"sleep"}
    assert ask(path, "SELECT DISTINCT bucket FROM wait_detail") == [{"bucket": 9}]


@pytest.mark.parametrize(
    "took_ns", [4 * MS, 5 * MS + 100 * US, 200 * US], ids=["time slices", "GIL", "short"]
)
def test_lengths_that_repeat_for_other_reasons_are_no_sleep(path: Path, took_ns: int) -> None:
    go = GoRecording(path).session()
    for step in range(40):
        go.away(step * 10 * MS, took_ns + step % 3 * 100)
    assert "sleep" not in time_of(go.close())


def test_time_on_the_core_is_only_claimed_where_every_switch_was_stored(path: Path) -> None:
    for stored, expected in ((2, "host_cpu"), (1, "unexplained")):
        file = path.with_name(f"{stored}.db")
        go = GoRecording(file).session().call(3, at_ns=0, took_ns=10 * US)
        go.away(100 * MS, 2 * MS).away(200 * MS, 3 * MS)
        go.aggregate(3, 1, 2, stored, sum_dur=5 * MS).close()
        found = time_of(file)
        assert sum(found.values()) == 203 * MS
        assert found["cuda_cpu"] == 10 * US
        assert found[expected] >= 203 * MS - 5 * MS - 10 * US
        assert "runqueue" not in found


def test_time_in_calls_that_were_not_stored_is_counted_once(path: Path) -> None:
    go = GoRecording(path).session().call(3, at_ns=0, took_ns=10 * US).away(SECOND, MS)
    go.aggregate(3, 1, 1, 1, sum_dur=MS)
    go.aggregate(1, 3, 1000, 1, sum_dur=50 * MS + 10 * US)
    go.aggregate(4, 1, 1000, 0, sum_dur=30 * MS)  # inside the runtime's calls
    found = time_of(go.close())
    assert abs(found["cuda_cpu"] - (50 * MS + 10 * US)) <= 2
    assert sum(found.values()) == SECOND + MS


def test_time_away_whose_rows_are_missing_is_not_called_work(path: Path) -> None:
    go = GoRecording(path).session().call(3, at_ns=0, took_ns=US).away(SECOND, MS)
    go.aggregate(3, 1, 3, 3, sum_dur=401 * MS)
    found = time_of(go.close())
    assert abs(found["unexplained"] - 401 * MS) <= 2
    assert abs(found["host_cpu"] - (600 * MS - US)) <= 2


def test_time_inside_a_synchronising_call_is_gpu_wait(path: Path) -> None:
    go = GoRecording(path).session().call(6, at_ns=0, took_ns=20 * MS).away(5 * MS, 2 * MS)
    assert time_of(go.close()) == {"gpu_wait": 18 * MS, "unexplained": 2 * MS}
    rows = ask(path, "SELECT bucket, ns FROM call_time ORDER BY 1")
    assert [tuple(row.values()) for row in rows] == [("gpu_wait", 18 * MS), ("unexplained", 2 * MS)]


def test_time_is_split_at_the_turn_of_seconds(path: Path) -> None:
    go = GoRecording(path).session().away(SECOND // 2, 2 * SECOND)
    rows = ask(
        go.close(), "SELECT bucket_start_ns - ? AS at, ns FROM thread_time".replace("?", str(START_NS))
    )
    assert [tuple(row.values()) for row in rows] == [
        (0, SECOND // 2),
        (SECOND, SECOND),
        (2 * SECOND, SECOND // 2),
    ]


def test_minutes_are_judged_one_by_one(path: Path) -> None:
    go = GoRecording(path).session(120).call(3, at_ns=0, took_ns=US).away(MINUTE + SECOND, MS)
    go.aggregate(3, 1, 0, 0).aggregate(3, 1, 1, 1, bucket=START_NS + MINUTE, sum_dur=MS)
    found = time_of(go.close())
    assert found["unexplained"] == MINUTE - US + MS  # no aggregate that counts the first minute's switches
    assert found["host_cpu"] == SECOND
