"""Jobs that name threads and start programs without end: what is stored is bounded, and events stay."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from ingero.model.window import Window
from ingero.store import names, processes, unused
from ingero.store.reader import Reader
from ingero.store.recording import connect
from ingero.store.unused import BELONGING, BY_PID, OWNERS, REFERRING, references
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, call, fixed_clock, process, thread, window


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything a hundredth of its size."""
    monkeypatch.setattr(names, "PER_PROCESS", 20)
    monkeypatch.setattr(names, "MOST", 100)
    monkeypatch.setattr(processes, "MOST", 100)
    monkeypatch.setattr(unused, "MANY", 10)
    monkeypatch.setattr(unused, "ROWS_PER_STEP", 50)
    monkeypatch.setattr(unused, "KEEP_NS", 2 * SECOND)
    monkeypatch.setattr(unused, "AGAIN_NS", 5 * SECOND)


def named(second: int, *names_of_threads: str, pid: int = 100) -> Window:
    threads = [
        thread(pid=pid, tid=pid + at, comm=name, gpu_wait=SECOND) for at, name in enumerate(names_of_threads)
    ]
    calls = [call(at_ns=second * SECOND + at, pid=pid) for at in range(3)]
    return window(second * SECOND, threads=np.concatenate(threads), calls=calls, processes=[process(pid=pid)])


def count(path: Path, table: str, where: str = "1") -> int:
    with Reader(path) as reader:
        found: int = reader.connection.execute(f"SELECT COUNT(*) FROM {table} WHERE {where}").fetchone()[0]
        return found


@pytest.mark.usefixtures("small")
def test_a_process_that_names_threads_without_end_gets_one_name_for_the_rest(path: Path) -> None:
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        for second in range(5):
            fresh = [f"t{second}-{at}" for at in range(8)]
            assert writer.write(named(second, *fresh)) == ""
        assert writer.write(named(5, "its own", pid=900)) == ""
        assert writer.dropped["name_full"] > 0
    with Reader(path) as reader:
        comms = {row[0] for row in reader.rows("SELECT DISTINCT comm FROM thread_time")}
        lost = reader.rows("SELECT SUM(count) FROM losses WHERE reason = 'name_full'")[0][0]
    assert names.OTHERS in comms
    assert "its own" in comms  # another process pays for its own names
    assert lost == writer.dropped["name_full"]


@pytest.mark.usefixtures("small")
def test_names_are_bounded_in_all_and_those_nobody_uses_make_room(path: Path) -> None:
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        for second in range(60):
            writer.write(named(second, *(f"t{second}-{at}" for at in range(10)), pid=1000 + second))
            assert count(path, "string") <= 100 + 10
        assert writer.dropped["name_full"] > 0
        writer._connection.execute(
            "DELETE FROM thread_second WHERE start_ns < (SELECT MAX(start_ns) FROM thread_second)"
        )
        for second in range(60, 120):
            writer.write(named(second, "steady", pid=5000))
        writer.write(named(120, "late and new", pid=5001))
    with Reader(path) as reader:
        assert ("late and new",) in reader.rows("SELECT DISTINCT comm FROM thread_time")


@pytest.mark.usefixtures("small")
def test_short_programs_are_bounded_and_gone_when_nothing_refers_to_them(path: Path) -> None:
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        for second in range(40):
            short = [
                process(pid=2000 + second * 10 + at, start_ns=second * SECOND, end_ns=second * SECOND + 1)
                for at in range(10)
            ]
            writer.write(
                window(
                    second * SECOND, processes=[*short, process(pid=100)], calls=call(at_ns=second * SECOND)
                )
            )
            assert count(path, "process") <= 100
        writer._connection.execute("DELETE FROM event WHERE pid >= 2000")
        for second in range(40, 100):
            writer.write(
                window(second * SECOND, processes=[process(pid=100)], calls=call(at_ns=second * SECOND))
            )
    assert writer.dropped["process_rows"] > 0
    assert count(path, "process", "pid >= 2000") < 20
    assert count(path, "process", "pid = 100") == 1


@pytest.mark.usefixtures("small")
def test_what_is_still_referred_to_stays(path: Path) -> None:
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        for second in range(30):
            writer.write(named(second, f"name{second}", pid=3000 + second))
    with Reader(path) as reader:
        comms = {row[0] for row in reader.rows("SELECT DISTINCT comm FROM thread_time")}
        assert comms == {f"name{second}" for second in range(30)}
        unknown = reader.rows("SELECT COUNT(*) FROM events WHERE pid NOT IN (SELECT pid FROM processes)")
    assert unknown == [(0,)]


def test_every_column_that_refers_to_such_a_row_is_looked_at(path: Path) -> None:
    """A column that is named otherwise would have its rows deleted under it."""
    connection = connect(path)
    known = {(each.table, column) for each in references(connection) for column in each.columns}
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    suspicious = {
        (table, row[1])
        for table in tables
        for row in connection.execute(f"PRAGMA table_info({table})")
        if (row[1] in REFERRING or row[1].endswith(("comm_id", "process_id", "kernel_id")))
        and table not in (*OWNERS, *BELONGING)
    }
    assert suspicious <= known
    assert {(table, column) for table, column, _ in BY_PID} <= known
    # Ids of rows that are never deleted, or of the table itself.
    others = {
        *("node_id", "op_id", "recording_id", "event_id", "boot_id", "gpu_id", "bus_id", "call_op_id"),
        *("first_id", "last_id", "rolled_id", "function_id", "file_id", "module_id", "container_id"),
    }
    ids = {
        row[1]
        for table in tables
        for row in connection.execute(f"PRAGMA table_info({table})")
        if row[1].endswith("_id")
    }
    connection.close()
    assert ids <= others | set(REFERRING)


def fail(*_: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


def test_a_rollback_begins_the_look_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unused, "MANY", 1)
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        writer.write(named(0, "a"))
        recording = writer._recording
        recording._unused.note(5, 0)
        recording.drop_unused(SECOND)
        assert recording._unused._looking is not None
        monkeypatch.setattr(recording, "_store", fail)
        with pytest.raises(sqlite3.OperationalError):
            recording.store(named(1, "b"))
        assert recording._unused._looking is None


def test_a_small_database_has_room_for_few_names_and_a_large_one_for_many() -> None:
    assert names.most_names(0) == names.most_names(10 << 30) == names.MOST
    assert names.most_names(20 << 20) * 100 < 20 << 20
    assert processes.most_processes(100 << 20) * 5000 < 100 << 20
