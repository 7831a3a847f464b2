from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingero.errors import StoreError, UsageError
from ingero.store.guard import Limits
from ingero.store.reader import Reader
from ingero.store.sql_process import run
from tests.builders import call, window
from tests.go_databases import SECOND, GoRecording

MEGABYTES = "printf('%04000000d', 0)"  # four of them, of zeros


@pytest.fixture
def reader(stored: Callable[..., Reader]) -> Iterator[Reader]:
    with stored(window(calls=[call() for _ in range(50)])) as opened:
        yield opened


def test_rows_of_every_type_come_back_as_they_are(reader: Reader) -> None:
    answer = run(
        reader, "SELECT COUNT(*) AS n, 'é\U0001f600', x'00ff', NULL, 1.5, -9223372036854775808 FROM events"
    )
    assert answer.columns[0] == "n"
    assert answer.rows == [(50, "é\U0001f600", b"\0\xff", None, 1.5, -(2**63))]
    assert not answer.truncated
    assert run(reader, "SELECT id FROM events", Limits(rows=10)).truncated


def test_a_long_text_of_a_recording_stays_readable(reader: Reader) -> None:
    assert run(reader, f"SELECT length({MEGABYTES}), {MEGABYTES}").rows == [(4_000_000, "0" * 4_000_000)]


@pytest.mark.parametrize(
    "sql", ["DROP VIEW events", "SELECT * FROM nowhere", "SELECT '\ud800'", "", "SELECT 1; SELECT 2"]
)
def test_mistakes_and_refusals_come_back_with_their_hint(reader: Reader, sql: str) -> None:
    with pytest.raises(UsageError) as raised:
        run(reader, sql)
    assert raised.value.hint


@pytest.mark.parametrize(
    "sql",
    [  # each takes hours: every place of the one text is compared with the whole of the other
        f"SELECT instr({MEGABYTES}, substr({MEGABYTES}, 1, 2000000) || '1')",
        f"SELECT trim({MEGABYTES}, replace(printf('%0600000d', 0), '0', '1') || '0')",
        f"SELECT replace({MEGABYTES}, substr({MEGABYTES}, 1, 2000000) || '1', '')",
        "SELECT " + ", ".join([f"{MEGABYTES} LIKE '{'%0' * 90}1'"] * 200),
    ],
    ids=["instr", "trim", "replace", "like"],
)
def test_a_function_that_takes_hours_is_ended(reader: Reader, sql: str) -> None:
    started = time.monotonic()
    with pytest.raises(StoreError, match=r"longer than 0\.2 s"):
        run(reader, sql, Limits(seconds=0.2))
    assert time.monotonic() - started < 30


HUGE = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 100000)"
WIDE = f"{HUGE} SELECT x, printf('%0500d', x * 7919 % 100003) AS wide FROM n"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT * FROM ({WIDE}) ORDER BY wide LIMIT 1 OFFSET 90000",
        f"SELECT wide, COUNT(*) FROM ({WIDE}) GROUP BY wide",
        f"SELECT COUNT(DISTINCT wide) FROM ({WIDE})",
        f"SELECT * FROM ({WIDE}) UNION SELECT * FROM ({WIDE})",
    ],
    ids=["order by", "group by", "distinct", "union"],
)
def test_a_query_cannot_fill_the_disk(reader: Reader, sql: str) -> None:
    with pytest.raises(StoreError, match="temporary disk space") as raised:
        run(reader, sql, Limits(temporary_bytes=8 << 20))
    assert raised.value.hint


def test_a_sort_larger_than_memory_allows_for_works(reader: Reader) -> None:
    assert run(reader, f"SELECT x FROM ({WIDE}) ORDER BY wide LIMIT 1 OFFSET 90000").rows


def test_two_large_sorts_in_one_statement_work(reader: Reader) -> None:
    many = " UNION ALL ".join(
        f"SELECT * FROM (SELECT x FROM ({WIDE}) ORDER BY wide DESC LIMIT -1 OFFSET 1)" for _ in range(2)
    )
    assert run(reader, f"SELECT COUNT(*) FROM ({many})").rows == [(199_998,)]


def test_a_module_of_our_name_in_the_current_folder_is_not_run(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ingero").mkdir()
    (tmp_path / "ingero/__init__.py").write_text("open('fallen', 'w')")
    monkeypatch.chdir(tmp_path)
    assert run(reader, "SELECT 1").rows == [(1,)]
    assert not os.path.exists("fallen")  # noqa: PTH110


def test_a_node_asked_for_is_the_one_seen(stored: Callable[..., Reader], path: Path) -> None:
    stored(window(calls=[call()]), node="a").close()
    stored(window(calls=[call(), call()]), node="b").close()
    with Reader(path, "b") as reader:
        assert run(reader, "SELECT node, COUNT(*) FROM events GROUP BY node").rows == [("b", 2)]


def test_a_recording_of_the_go_implementation_is_asked_the_same_way(tmp_path: Path) -> None:
    go = GoRecording(tmp_path / "go.db").session()
    go.call(7, at_ns=SECOND, took_ns=40_000)
    with Reader(go.close()) as reader:
        assert run(reader, "SELECT op FROM events").rows == [("cudaMemcpyAsync",)]
