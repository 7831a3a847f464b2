from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingero.errors import IngeroError, StoreError, UsageError
from ingero.store.guard import Limits, run
from ingero.store.reader import Reader
from tests.builders import call, window


@pytest.fixture
def reader(stored: Callable[..., Reader]) -> Iterator[Reader]:
    with stored(window(calls=[call() for _ in range(50)])) as opened:
        yield opened


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM events",
        "  select count(*) from events ; ",
        "-- a comment\nSELECT COUNT(*) FROM events; -- and another\n",
        "/* x */ WITH e AS (SELECT * FROM events) SELECT COUNT(*) FROM e",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 50) SELECT MAX(x) FROM n",
    ],
)
def test_one_reading_statement_runs(reader: Reader, sql: str) -> None:
    assert run(reader.connection, sql).rows == [(50,)]


def test_the_columns_of_a_view_can_be_asked_for(reader: Reader) -> None:
    assert ("source",) in run(reader.connection, "SELECT name FROM pragma_table_info('events')").rows
    assert run(reader.connection, "PRAGMA table_info(events)").rows
    assert run(reader.connection, "EXPLAIN QUERY PLAN SELECT * FROM events").rows


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM event",
        "INSERT INTO meta VALUES (1, 2)",
        "UPDATE node SET name = 'x'",
        "DROP VIEW events",
        "CREATE TABLE t (x)",
        "CREATE TEMP TABLE t (x)",
        "ATTACH '/etc/passwd' AS p",
        "ATTACH ':memory:' AS m",
        "DETACH main",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA query_only = OFF",
        "PRAGMA hard_heap_limit = 0",
        "SELECT load_extension('/tmp/x.so')",
        "SELECT writefile('/tmp/x', 'y')",
        "SELECT readfile('/etc/passwd')",
        "SELECT fts3_tokenizer('simple')",
        "VACUUM",
        "VACUUM INTO '/tmp/stolen.db'",
        "REINDEX",
        "ANALYZE",
        "BEGIN",
        "SAVEPOINT s",
        "CREATE VIRTUAL TABLE v USING fts5(x)",
        "SELECT * FROM pragma_journal_mode",
        "EXPLAIN DELETE FROM event",
        "SELECT zeroblob(1000000000)",
        "SELECT randomblob(1000000000)",
    ],
)
def test_anything_but_reading_is_refused(reader: Reader, sql: str) -> None:
    with pytest.raises(UsageError) as raised:
        run(reader.connection, sql)
    assert raised.value.hint
    assert run(reader.connection, "SELECT COUNT(*) FROM events").rows == [(50,)]


@pytest.mark.parametrize(
    "sql, said",
    [
        ("SELECT 1; SELECT 2", "one statement"),
        ("", "no SQL"),
        (" ;; ", "no SQL"),
        ("-- nothing", "nothing"),
        ("SELECT * FROM nowhere", "no such table: nowhere"),
        ("SELECT none_such FROM events", "no such column: none_such"),
        ("SELEC 1", "syntax error"),
        ("SELECT '\0'", ""),
        ("SELECT '\ud800'", ""),
        ("SELECT ?", ""),
        ("SELECT " + "(" * 5000 + "1" + ")" * 5000, ""),
        ("SELECT 1 " + " " * 200_000, ""),
    ],
)
def test_mistakes_are_explained(reader: Reader, sql: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        run(reader.connection, sql)
    assert said in raised.value.message


def test_what_is_said_is_not_said_twice(reader: Reader) -> None:
    with pytest.raises(UsageError) as raised:
        run(reader.connection, "SELECT 1; SELECT 2")
    assert raised.value.message == "only one statement can be run at a time"


def test_rows_beyond_the_limit_are_cut_and_it_is_said(reader: Reader) -> None:
    answer = run(reader.connection, "SELECT id FROM events", Limits(rows=10))
    assert (len(answer.rows), answer.truncated, answer.columns) == (10, True, ["id"])
    assert not run(reader.connection, "SELECT id FROM events", Limits(rows=50)).truncated


def test_bytes_beyond_the_limit_are_cut_too(reader: Reader) -> None:
    answer = run(reader.connection, "SELECT printf('%01000d', 1) FROM events", Limits(bytes=5_000))
    assert answer.truncated
    assert len(answer.rows) < 10


def test_an_endless_query_is_stopped(reader: Reader) -> None:
    started = time.monotonic()
    with pytest.raises(StoreError, match=r"longer than 0\.2 s"):
        run(
            reader.connection,
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT MAX(x) FROM n",
            Limits(seconds=0.2),
        )
    assert time.monotonic() - started < 5
    assert run(reader.connection, "SELECT 1").rows == [(1,)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT replace(printf('%01000000d', 0), '0', printf('%01000000d', 0))",
        "WITH RECURSIVE n(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM n LIMIT 60) SELECT MAX(x) FROM n",
        "SELECT 'x' LIKE '" + "%a" * 500 + "'",
    ],
)
def test_a_text_bomb_does_not_go_off(reader: Reader, sql: str) -> None:
    started = time.monotonic()
    with pytest.raises(IngeroError):
        run(reader.connection, sql, Limits(seconds=5))
    assert time.monotonic() - started < 10


def test_a_number_two_gigabytes_wide_is_not_printed(reader: Reader) -> None:
    assert run(reader.connection, "SELECT printf('%2000000000d', 1)").rows == [(None,)]


def test_a_hostile_schema_cannot_write_or_run_long(reader: Reader, path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute(
        "CREATE VIEW mine AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x FROM n"
    )
    other.commit()
    other.close()
    with pytest.raises(StoreError, match="longer"):
        run(reader.connection, "SELECT COUNT(*) FROM mine", Limits(seconds=0.2))


def test_the_readers_own_questions_still_work_afterwards(reader: Reader) -> None:
    with pytest.raises(UsageError):
        run(reader.connection, "DROP VIEW events")
    assert reader.recordings()
