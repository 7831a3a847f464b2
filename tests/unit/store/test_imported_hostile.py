"""Files that look like recordings of the Go implementation and are not what they seem."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingero.errors import StoreError
from ingero.store.reader import Reader
from tests.go_databases import (
    START_NS,
    GoRecording,
    ask,
    column_names,
    losses,
    statistics,
    tables,
    time_of,
)

MS = 1_000_000
US = 1_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "go.db"


@pytest.mark.parametrize("column", ["timestamp", "pid", "op", "duration"])
def test_a_table_without_a_needed_column_is_refused(path: Path, column: str) -> None:
    columns = tables("0.9")["events"].replace(f" {column} ", f" not_{column} ")
    go = GoRecording(path, events=columns)
    with pytest.raises(StoreError, match=f"no column {column}"):
        Reader(go.close())


@pytest.mark.parametrize(
    "missing", [name for name in tables("0.10") if name not in ("events", "schema_info")]
)
def test_any_other_table_may_be_missing(path: Path, missing: str) -> None:
    go = GoRecording(path, "0.10", **{missing: None})
    if missing != "sessions":
        go.session()
    go.call(3, at_ns=0, took_ns=US)
    assert len(ask(go.close(), "SELECT id FROM events")) == 1


def test_any_other_column_may_be_missing(path: Path) -> None:
    bare = "id TEXT PRIMARY KEY, timestamp, pid, tid, source, op, duration"
    changed = {name: "other" for name in tables("0.10") if name not in ("events", "sources")}
    go = GoRecording(path, "0.10", events=bare, **changed)
    row = {"pid": 1, "tid": 1, "op": 3, "duration": 5}
    for number, source in enumerate((1, 3, 4, 5, 6, 7, 8)):
        go.insert("events", id=f"n:{number + 1}", timestamp=START_NS, source=source, **row)
    assert len(ask(go.close(), "SELECT id, arg0, arg1, rank FROM events")) == 5
    assert losses(path) == {"unknown_operation": 2}  # neither tcp nor socket has a third one


HOSTILE = (None, "", "abc", b"\xff\x00", 1.5, -1, -(2**63), 2**63 - 1, 2**62, "9" * 5000)
ROWS = ((1, 7), (3, 1), (3, 4), (3, 6), (3, 7), (5, 1), (6, 1), (7, 1))


@pytest.mark.parametrize("column", column_names("0.10", "events"))
def test_any_value_in_any_column_of_events_is_taken_or_counted(path: Path, column: str) -> None:
    loose = ", ".join(column_names("0.10", "events"))
    go = GoRecording(path, "0.10", events=loose).session().call(3, at_ns=0, took_ns=US).away(MS, MS)
    go.block(1, at_ns=MS, took_ns=MS, arg0=8)
    for value in HOSTILE:
        for source, op in ROWS:
            go.event(**{"source": source, "op": op, "at_ns": 5 * MS, "took_ns": MS} | {column: value})
    go.close()
    rows = ask(path, "SELECT * FROM events")
    assert len(rows) >= 3
    assert len(rows) + sum(losses(path).values()) >= 3 + len(HOSTILE) * len(ROWS)
    for row in rows:
        for number in ("timestamp", "pid", "tid", "duration", "arg0", "arg1", "rank", "cgroup_id"):
            assert row[number] is None or isinstance(row[number], int)
        assert row["duration"] is None or row["duration"] >= 0
    statistics(path)
    time_of(path)


@pytest.mark.parametrize("table", [name for name in tables("0.10") if name != "events"])
def test_any_value_in_any_other_table_is_taken_or_left_out(path: Path, table: str) -> None:
    names = column_names("0.10", table)
    go = GoRecording(path, "0.10", **{table: ", ".join(names)}).session()
    go.call(3, at_ns=0, took_ns=US).away(MS, MS).aggregate(3, 1, 1, 1, sum_dur=MS)
    good = {
        "source": 1,
        "op": 3,
        "pid": 100,
        "bucket": START_NS,
        "timestamp": START_NS,
        "started_at": START_NS,
    }
    for name in names:
        for value in HOSTILE:
            go.insert(table, **{other: good.get(other, 1) for other in names} | {name: value})
    go.close()
    assert len(ask(path, "SELECT * FROM events")) == 2
    statistics(path)
    time_of(path)
    for row in ask(path, "SELECT * FROM operations"):
        assert isinstance(row["count"], int)
        assert row["count"] >= 0


@pytest.mark.parametrize(
    "frames",
    ["{", "[" * 100_000, "[1, null, [], {}]", '"text"', "9" * 6000, '[{"s": 5, "l": "x", "pl": 1e99}]', "[]"],
    ids=["cut", "deep", "mixed", "text", "number", "types", "none"],
)
def test_frames_that_are_no_frames_are_counted_or_made_unknown(path: Path, frames: str) -> None:
    go = GoRecording(path).session().call(3, at_ns=0, took_ns=US)
    go.insert("stack_traces", hash=1, ips="", frames=frames)
    go.insert("stack_traces", hash=2, ips="", frames='[{"s": "main"}]')
    rows = ask(go.close(), "SELECT * FROM stacks")
    assert [row for row in rows if row["stack_hash"] == 2]
    for row in rows:
        assert row["line"] is None
    assert losses(path).get("stack_unreadable", 0) == (0 if "{}" in frames or '"s"' in frames else 1)


def test_text_that_is_no_text_is_replaced(path: Path) -> None:
    go = GoRecording(path, "0.10").session().call(3, at_ns=0, took_ns=US)
    for table, column in (
        ("events", "node"),
        ("events", "comm"),
        ("sessions", "node"),
        ("sessions", "flags"),
    ):
        go.connection.execute(f"UPDATE {table} SET {column} = CAST(x'ff41001b5b333142' AS TEXT)")
    go.insert("process_names", pid=7, name="x" * 100_000)
    (row,) = ask(go.close(), "SELECT node, comm FROM events")
    assert row["node"].startswith("\ufffdA")
    assert "\x1b" not in row["node"] + row["comm"]
    (other,) = ask(path, "SELECT comm FROM processes WHERE pid = 7")
    assert len(other["comm"]) == 64


def test_a_table_that_is_a_view_is_not_taken_for_one(path: Path) -> None:
    go = GoRecording(path, process_names=None).session().call(3, at_ns=0, took_ns=US)
    go.connection.execute(
        "CREATE VIEW process_names AS WITH RECURSIVE n(pid) AS (SELECT 1 UNION ALL SELECT pid + 1 FROM n)"
        " SELECT pid, 'x' AS name FROM n"
    )
    assert ask(go.close(), "SELECT comm FROM events") == [{"comm": None}]


def test_a_thread_that_spans_ages_is_counted_and_not_accounted(path: Path) -> None:
    go = GoRecording(path).session().call(3, at_ns=0, took_ns=US).call(3, at_ns=0, took_ns=US, timestamp=5)
    assert time_of(go.close()) == {}
    assert losses(path)["thread_not_accounted"] == 1


def test_a_file_cut_short_is_an_error_not_a_crash(path: Path) -> None:
    go = GoRecording(path).session()
    go.connection.execute("BEGIN")
    for number in range(3000):
        go.call(3, at_ns=number * MS, took_ns=US)
    go.connection.execute("COMMIT")
    whole = go.close().read_bytes()
    for size in (len(whole) // 2, len(whole) - 5000, 9000):
        path.write_bytes(whole[:size])
        with pytest.raises(StoreError):
            Reader(path)
    damaged = bytearray(whole)
    damaged[8192:60_000] = b"\xa5" * (60_000 - 8192)
    path.write_bytes(damaged)
    with pytest.raises(StoreError):
        Reader(path)
