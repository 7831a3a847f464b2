from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from ingero.errors import StoreBusyError, StoreError
from ingero.model.window import Window
from ingero.store import writer as writing
from ingero.store.findings import FindingRow
from ingero.store.reader import Reader
from ingero.store.recording import connect
from ingero.store.retention import Retention
from ingero.store.writer import Writer
from tests.builders import (
    EPOCH_NS,
    OPERATIONS,
    SECOND,
    FakeTime,
    call,
    fixed_clock,
    operation,
    process,
    window,
)


def _writer(path: Path, max_bytes: int = 0) -> Writer:
    return Writer(path, "gpu-node-01", fixed_clock(), OPERATIONS, max_bytes)


def _second(number: int, calls: int = 1) -> Window:
    return window(number * SECOND, calls=[call("cudaFree", at_ns=number * SECOND)] * calls)


def _count(path: Path, sql: str = "SELECT COUNT(*) FROM cuda_events") -> int:
    with Reader(path) as reader:
        return int(reader.rows(sql)[0][0])


def test_a_locked_database_delays_windows_and_loses_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = _writer(path)
    writer._connection.execute("PRAGMA busy_timeout = 20")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert "locked" in writer.write(_second(0))
    assert "locked" in writer.write(_second(1))
    other.execute("ROLLBACK")
    other.close()
    assert writer.write(_second(2)) == ""
    writer.close()
    assert _count(path) == 3
    assert not writer.dropped


def test_what_exceeds_the_backlog_is_a_loss_with_its_interval(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "BACKLOG_WINDOWS", 2)
    writer = _writer(path)
    writer._connection.execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for number in range(5):
        writer.write(_second(number, calls=10))
    assert writer.dropped == {"store_backlog": 30}
    other.execute("ROLLBACK")
    other.close()
    writer.close()
    with Reader(path) as reader:
        assert reader.rows("SELECT COUNT(*) FROM cuda_events") == [(20,)]
        (loss,) = reader.rows("SELECT reason, count, end_ns - start_ns FROM losses")
    assert loss == ("store_backlog", 30, 3 * SECOND)


def test_a_full_disk_is_reported_and_writing_goes_on_when_there_is_room(path: Path) -> None:
    writer = _writer(path)
    assert writer.write(_second(0)) == ""
    pages = writer._connection.execute("PRAGMA page_count").fetchone()[0]
    writer._connection.execute(f"PRAGMA max_page_count = {pages}")
    assert "no space" in writer.write(_second(1, calls=5_000))
    writer._connection.execute("PRAGMA max_page_count = 1000000")
    assert writer.write(_second(2)) == ""
    writer.close()
    assert _count(path) == 5_002


def test_numbers_of_a_rolled_back_window_are_not_used(path: Path) -> None:
    writer = _writer(path)
    pages = writer._connection.execute("PRAGMA page_count").fetchone()[0]
    writer._connection.execute(f"PRAGMA max_page_count = {pages}")
    first = window(calls=[call(comm="newcomer", pid=55)] * 5_000)
    assert writer.write(first)
    writer._connection.execute("PRAGMA max_page_count = 1000000")
    writer.write(_second(1))
    writer.close()
    with Reader(path) as reader:
        assert reader.rows("SELECT comm, COUNT(*) FROM events WHERE pid = 55 GROUP BY comm") == [
            ("newcomer", 5000)
        ]


def test_a_database_removed_while_recording_is_noticed(path: Path) -> None:
    writer = _writer(path)
    writer.write(_second(0))
    path.unlink()
    assert "removed" in writer.write(_second(1))
    assert "removed" in writer.close()


def test_a_directory_that_cannot_be_made_is_a_clear_error() -> None:
    with pytest.raises(StoreError) as raised:
        _writer(Path("/proc/nowhere/ingero.db"))
    assert "/proc/nowhere/ingero.db" in raised.value.message
    assert raised.value.hint


def test_a_database_locked_from_the_start_is_a_clear_error(path: Path) -> None:
    _writer(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreBusyError):
        _writer(path)
    other.close()


def test_ids_go_on_where_the_last_recording_stopped(path: Path) -> None:
    for number in range(2):
        with _writer(path) as writer:
            writer.write(_second(number, calls=3))
    with Reader(path) as reader:
        ids = [row[0] for row in reader.rows("SELECT id FROM events")]
    assert ids == [f"gpu-node-01:{n}" for n in range(1, 7)]


def test_two_nodes_in_one_database_stay_apart(path: Path) -> None:
    for node in ("a", "b"):
        with Writer(path, node, fixed_clock(), OPERATIONS) as writer:
            writer.write(_second(0))
    with Reader(path) as reader:
        assert reader.rows("SELECT id, node FROM events") == [("a:1", "a"), ("b:1", "b")]
        assert reader.event_id("b:1") == reader.rows("SELECT MAX(id) FROM event")[0][0]


def test_steps_of_the_clock_are_stored(path: Path) -> None:
    times = FakeTime()
    clock = times.clock()
    with Writer(path, "n", clock, OPERATIONS) as writer:
        times.wall_ns += 5 * SECOND
        clock.observe()
        writer.write(_second(1))
        writer.write(_second(2))
    assert _count(path, "SELECT COUNT(*) FROM clock_step WHERE delta_ns = 5000000000 AND adopted") == 1


def test_a_finding_seen_again_keeps_its_id_and_first_instant(path: Path) -> None:
    with _writer(path) as writer:
        for number in range(3):
            row = FindingRow(
                "k", "cpu-contention", "HIGH", "t", 10 + number, 20 + number, "{}", wall_share=number / 10
            )
            writer.save_findings([row])
            writer.write(_second(number))
    with Reader(path) as reader:
        (found,) = reader.rows("SELECT id, first_ns, last_ns, wall_share FROM findings")
    assert found == ("gpu-node-01:2", 10, 22, 0.2)


def test_the_end_of_a_recording_is_marked(path: Path) -> None:
    writer = _writer(path)
    writer.write(_second(0))
    with Reader(path) as reader:
        assert reader.recordings()[0].ended_ns is None
    writer.close()
    with Reader(path) as reader:
        assert reader.recordings()[0].ended_ns is not None


CHILD = """
import sys
from tests.builders import OPERATIONS, SECOND, call, fixed_clock, operation, records, window
from ingero.store.writer import Writer
writer = Writer(sys.argv[1], "n", fixed_clock(), OPERATIONS, 4 << 20)
rows = records(*[call("cudaFree")] * 2000)
for number in range(100000):
    rows["h"]["start_ns"] = number * SECOND
    assert not writer.write(window(number * SECOND, calls=rows, operations=operation()))
    print(number, flush=True)
"""


def _killed_while_writing(path: Path, after_s: float) -> int:
    """The last window the child said it had stored."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(after_s)
    child.send_signal(signal.SIGKILL)
    said = child.stdout.read().split()
    child.wait()
    child.stdout.close()
    return int(said[-1]) if said else 0


@pytest.mark.parametrize("attempt", range(4))
def test_a_killed_recorder_leaves_a_sound_database_without_its_last_window_at_most(
    path: Path, attempt: int
) -> None:
    last = _killed_while_writing(path, random.Random(attempt).uniform(0.01, 0.6))
    with Reader(path) as reader:
        assert reader.rows("PRAGMA integrity_check") == [("ok",)]
        stored = reader.rows("SELECT COUNT(*), MAX(start_ns) FROM window")[0]
        newest = reader.rows("SELECT MAX(ts_ns) FROM event")[0][0]
        assert reader.rows("SELECT COUNT(*) FROM event WHERE ts_ns = ?", (newest,)) == [(2000,)]
    assert stored[0] >= last + 1
    with _writer(path) as writer:  # and the next recording goes on in it
        assert writer.write(_second(200_000)) == ""


def _fill(writer: Writer, seconds: int, first: int = 0) -> None:
    for number in range(first, first + seconds):
        calls = [call("cudaFree", at_ns=number * SECOND)] * 1_000
        writer.write(window(number * SECOND, calls=calls, operations=operation(durations_ns=[5_000] * 9)))


def _on_disk(path: Path) -> int:
    return sum(p.stat().st_size for p in path.parent.iterdir() if p.name.startswith(path.name))


def test_the_database_stays_below_its_limit_and_keeps_the_newest(path: Path) -> None:
    writer = _writer(path, 1 << 20)
    writer.save_findings([FindingRow("k", "cpu-contention", "HIGH", "t", 1, 2, "{}")])
    _fill(writer, 60)  # some 3 MB
    assert _on_disk(path) <= 1 << 20
    writer.close()
    with Reader(path) as reader:
        oldest, newest = reader.rows("SELECT MIN(timestamp_ns), MAX(timestamp_ns) FROM cuda_events")[0]
        assert newest > oldest
        assert reader.rows("SELECT MAX(start_ns) FROM window")[0][0] == newest
        # aggregates and findings outlive the detail
        assert reader.rows("SELECT SUM(count) FROM operations") == [(9 * 60,)]
        assert reader.rows("SELECT COUNT(*) FROM findings") == [(1,)]


def test_a_database_above_a_new_limit_really_shrinks(path: Path) -> None:
    with _writer(path) as writer:
        _fill(writer, 60)
    assert path.stat().st_size > 3 << 20
    with _writer(path, 1 << 20) as writer:
        _fill(writer, 20, first=100)
    assert path.stat().st_size <= 1 << 20


def test_without_a_limit_nothing_is_deleted(path: Path) -> None:
    with _writer(path) as writer:
        _fill(writer, 10)
    assert _count(path) == 10_000


def test_bystanders_go_with_the_oldest_aggregates_though_nobody_saw_them_end(path: Path) -> None:
    crowd = [process(pid, pid * SECOND, target=False) for pid in range(1000, 1010)]
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        writer.write(window(processes=[process()], bystanders=crowd))
    with closing(connect(path)) as connection:
        oldest = Retention(connection, 1, 1, 1)._delete_minutes(EPOCH_NS + 1005 * SECOND)
        left = [pid for (pid,) in connection.execute("SELECT pid FROM process ORDER BY pid")]
    assert oldest == 5
    assert left == [100, *range(1005, 1010)]
