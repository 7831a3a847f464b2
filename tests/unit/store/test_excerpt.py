"""A part of a recording as a database of its own."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ingero.store import excerpt
from ingero.store.excerpt import ExcerptPart, TooLargeError, write_excerpt
from ingero.store.merge.result import merge
from ingero.store.reader import Reader
from ingero.store.schema import TABLES
from ingero.store.views import VIEWS
from ingero.store.writer import Writer
from tests.builders import (
    EPOCH_NS,
    OPERATIONS,
    SECOND,
    FakeTime,
    call,
    finding,
    operation,
    process,
    thread,
    window,
)
from tests.merging import rows


def record(path: Path, node: str = "a", seconds: int = 20) -> Path:
    time = FakeTime()
    with Writer(path, node, time.clock(), OPERATIONS, cores=4) as writer:
        for at in range(seconds):
            writer.write(
                window(
                    at * SECOND,
                    calls=[call(at_ns=at * SECOND + 5), meeting(at)],
                    operations=[operation(durations_ns=(1000, 2000))],
                    threads=[thread(host_cpu=SECOND)],
                    processes=[process()],
                    losses={"ring_call": 1},
                )
            )
    return path


def meeting(at: int) -> Any:
    return call("ncclAllReduce", at_ns=at * SECOND + 9, comm_hash=7, seq=at, rank=0, nranks=1)


def columns() -> dict[str, set[str]]:
    connection = sqlite3.connect(":memory:")
    for statement in TABLES:
        connection.execute(statement)
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))}
        for name in names
    }


def test_every_table_has_its_rule() -> None:
    ruled = [*excerpt.TIMES, *excerpt.DETAIL, *excerpt.WHOLE, *excerpt.APART]
    assert sorted(ruled) == sorted(columns())


LENGTHS = {
    "duration_ns", "runqueue_ns", "queued_ns", "sum_ns", "min_ns", "max_ns", "p50_ns", "p95_ns", "p99_ns",
    "throttled_ns", "late_ns", "gil_ns", "system_ns", "spun_ns", "reclaiming_ns", "ns", "power_capped_ns",
    "heat_capped_ns", "asking_ns", "bucket_ns", "excess_ns", "agent_cpu_ns", "delta_ns", "ns_per_hit",
    "offset_ns", "error_ns",
}  # fmt: skip


def test_every_column_is_known_to_be_an_instant_or_a_length() -> None:
    from ingero.store.schema import BUCKET_COLUMNS, GAP_COLUMNS

    for table, names in columns().items():
        timed = {name for name in names if name.endswith("_ns")} - LENGTHS - {*BUCKET_COLUMNS, *GAP_COLUMNS}
        assert timed == set(excerpt.INSTANTS.get(table, ())), table


def test_without_a_range_everything_is_there(tmp_path: Path) -> None:
    source = record(tmp_path / "a.db")
    write_excerpt(source, tmp_path / "part.db", ExcerptPart())
    assert [view for view in VIEWS if rows(tmp_path / "part.db", view) != rows(source, view)] == []


def test_a_stretch_of_time_has_its_seconds_and_no_others(tmp_path: Path) -> None:
    source = record(tmp_path / "a.db")
    write_excerpt(source, tmp_path / "part.db", ExcerptPart(EPOCH_NS + 5 * SECOND, EPOCH_NS + 8 * SECOND))
    with Reader(tmp_path / "part.db") as reader:
        assert reader.rows(
            "SELECT MIN(timestamp), MAX(timestamp), COUNT(*) FROM events WHERE source <> 3"
        ) == [(EPOCH_NS + 5 * SECOND + 5, EPOCH_NS + 7 * SECOND + 9, 6)]
        assert reader.rows("SELECT COUNT(*) FROM operations") == [(3,)]
        assert reader.rows("SELECT COUNT(*), SUM(wait_ns) FROM nccl_events") == [(3, 0)]
        assert reader.rows("SELECT DISTINCT comm FROM events WHERE source <> 3") == [("python",)]


def test_only_the_tables_asked_for_and_what_names_their_rows(tmp_path: Path) -> None:
    source = record(tmp_path / "a.db")
    write_excerpt(source, tmp_path / "part.db", ExcerptPart(tables=frozenset({"operation_second"})))
    assert rows(tmp_path / "part.db", "operations") == rows(source, "operations")
    assert not rows(tmp_path / "part.db", "events")


def test_more_than_allowed_is_refused(tmp_path: Path) -> None:
    source = record(tmp_path / "a.db", seconds=60)
    with pytest.raises(TooLargeError, match="larger than"):
        write_excerpt(source, tmp_path / "part.db", ExcerptPart(max_bytes=300 << 10))


def test_all_times_are_moved_and_nothing_else(tmp_path: Path) -> None:
    """Moved by an hour and back again it is what it was."""
    source = record(tmp_path / "a.db")
    by = 3600 * SECOND
    write_excerpt(source, tmp_path / "later.db", ExcerptPart(shifts={"a": [(0, by)]}))
    with Reader(tmp_path / "later.db") as reader:
        assert reader.rows("SELECT MIN(timestamp) FROM events WHERE source = 1") == [(EPOCH_NS + by + 5,)]
        assert reader.recordings()[0].started_ns == EPOCH_NS + by
    write_excerpt(tmp_path / "later.db", tmp_path / "back.db", ExcerptPart(shifts={"a": [(0, -by)]}))
    assert [view for view in VIEWS if rows(tmp_path / "back.db", view) != rows(source, view)] == []


def test_each_stretch_between_two_steps_of_the_clock_has_its_own_move(tmp_path: Path) -> None:
    source = record(tmp_path / "a.db")
    step_ns = EPOCH_NS + 10 * SECOND
    write_excerpt(source, tmp_path / "moved.db", ExcerptPart(shifts={"a": [(0, -5 * SECOND), (step_ns, 0)]}))
    with Reader(tmp_path / "moved.db") as reader:
        found = reader.rows("SELECT timestamp FROM events WHERE op = 'cudaLaunchKernel' ORDER BY 1")
    first, last = found[0][0], found[-1][0]
    assert first == EPOCH_NS - 5 * SECOND + 5
    assert last == EPOCH_NS + 19 * SECOND + 5


def test_a_moved_database_of_nodes_is_no_input_of_another_merge(tmp_path: Path) -> None:
    """The same recording from elsewhere would not be known again, and counted twice."""
    from ingero.errors import StoreError

    write_excerpt(record(tmp_path / "a.db"), tmp_path / "m.db", ExcerptPart(shifts={"a": [(0, 5)]}))
    merge([tmp_path / "m.db", record(tmp_path / "b.db", "b")], tmp_path / "all.db")
    with pytest.raises(StoreError, match="clocks were corrected"):
        merge([tmp_path / "all.db", tmp_path / "a.db"], tmp_path / "again.db")


def test_a_findings_own_text_is_moved_with_it(tmp_path: Path) -> None:
    source = record(tmp_path / "a.db")
    told = finding()
    save_finding(source, told)
    write_excerpt(source, tmp_path / "m.db", ExcerptPart(shifts={"a": [(0, SECOND)]}))
    with Reader(tmp_path / "m.db") as reader:
        ((first_ns, text),) = reader.rows("SELECT first_ns, json FROM findings")
    assert first_ns == told.first_ns + SECOND
    assert f'"first_ns":{told.first_ns + SECOND}' in text
    assert f"[{told.episodes[0][0] + SECOND}," in text


def save_finding(path: Path, told: object) -> None:
    import msgspec

    connection = sqlite3.connect(path)
    connection.execute(
        "INSERT INTO finding (node_id, key, kind, severity, title, first_ns, last_ns, json)"
        " VALUES (1, '1:x', 'cpu-contention', 'HIGH', 't', ?, ?, ?)",
        (EPOCH_NS, EPOCH_NS + 8 * SECOND, msgspec.json.encode(told).decode()),
    )
    connection.commit()
    connection.close()
