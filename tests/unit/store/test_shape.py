from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ingero.errors import StoreError
from ingero.store import soundness
from ingero.store.merge.source import open_source
from ingero.store.reader import Reader
from ingero.store.soundness import TABLE_NAMES, require_plain_tables
from ingero.store.views import VIEWS
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, call, fixed_clock, window

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x AS name, x AS node_id FROM n"


@pytest.fixture
def recorded(stored: Callable[..., Reader], path: Path) -> Path:
    stored(window(calls=[call() for _ in range(3)])).close()
    return path


def change(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def as_view(table: str) -> tuple[str, ...]:
    return f"ALTER TABLE {table} RENAME TO other", f"CREATE VIEW {table.upper()} AS {ENDLESS}"


@pytest.mark.parametrize("table", sorted(TABLE_NAMES))
def test_a_view_in_place_of_a_table_is_refused(recorded: Path, table: str) -> None:
    change(recorded, "PRAGMA legacy_alter_table = ON", *as_view(table))
    with pytest.raises(StoreError, match=f"the table {table} is not a plain table") as raised:
        Reader(recorded)
    assert raised.value.hint


@pytest.mark.parametrize("table", ["migration", "event"])
def test_writing_and_merging_refuse_it_too(recorded: Path, table: str, tmp_path: Path) -> None:
    change(recorded, "PRAGMA legacy_alter_table = ON", *as_view(table))
    with pytest.raises(StoreError, match="not a plain table"):
        Writer(recorded, "a", fixed_clock(), OPERATIONS)
    with pytest.raises(StoreError, match="not a plain table"):
        open_source(recorded, tmp_path, None)


@pytest.mark.parametrize(
    "made",
    [
        "CREATE VIRTUAL TABLE string USING fts5(id, text)",
        "CREATE TABLE string (id INTEGER PRIMARY KEY, text AS (hex(zeroblob(400000000))))",
    ],
)
def test_a_table_that_computes_is_refused(recorded: Path, made: str) -> None:
    change(recorded, "PRAGMA legacy_alter_table = ON", "ALTER TABLE string RENAME TO other", made)
    with pytest.raises(StoreError, match="the table string is not a plain table"):
        Reader(recorded)


def test_an_older_sqlite_refuses_it_too(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundness, "_KINDS", "SELECT name, type FROM pragma_that_came_later")
    Reader(recorded).close()
    change(recorded, "PRAGMA legacy_alter_table = ON", *as_view("event"))
    with pytest.raises(StoreError, match="the table event is not a plain table"):
        Reader(recorded)


def test_every_table_of_ours_is_known_and_plain(recorded: Path) -> None:
    with contextlib.closing(sqlite3.connect(recorded)) as connection:
        made = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert made - {"sqlite_sequence", "sqlite_stat1"} == TABLE_NAMES
        require_plain_tables(connection, recorded)


@pytest.mark.parametrize("node", [None, "gpu-node-01"])
def test_a_view_that_is_not_ours_is_not_looked_at(recorded: Path, node: str | None) -> None:
    for name in VIEWS:
        change(recorded, f"DROP VIEW {name}", f"CREATE VIEW {name} AS {ENDLESS}")
    with Reader(recorded, node) as reader:
        assert reader.rows("SELECT COUNT(*) FROM events") == [(3,)]
        for name in VIEWS:
            reader.rows(f"SELECT * FROM {name}")


def test_one_node_is_seen_also_where_a_view_is_not_ours(stored: Callable[..., Reader], path: Path) -> None:
    stored(window(calls=[call()]), node="a").close()
    stored(window(calls=[call(), call()]), node="b").close()
    change(path, "DROP VIEW events", f"CREATE VIEW events AS {ENDLESS}")
    with Reader(path, "b") as reader:
        assert reader.rows("SELECT node, COUNT(*) FROM events GROUP BY 1") == [("b", 2)]


def test_views_of_the_users_own_are_welcome(recorded: Path) -> None:
    change(recorded, "CREATE VIEW mine AS SELECT COUNT(*) AS n FROM event")
    with Reader(recorded) as reader:
        assert reader.rows("SELECT n FROM mine") == [(3,)]
        assert reader.private_views == []
