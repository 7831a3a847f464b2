"""What a merge refuses, and that it leaves everything as it was then."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from ingero.errors import IngeroError, StoreError, UsageError
from ingero.store import migrations
from ingero.store.merge.result import merge
from ingero.store.migrations import Migration
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, FakeTime, call, window
from tests.merging import rows


def record(path: Path, node: str = "a", at_s: int = 0) -> Path:
    time = FakeTime()
    time.advance(at_s * SECOND)
    with Writer(path, node, time.clock(), OPERATIONS) as writer:
        writer.write(window(at_s * SECOND, calls=[call(at_ns=at_s * SECOND)]))
    return path


def damage(path: Path, *statements: str) -> Path:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def refused(sources: list[Path], out: Path, kind: type[IngeroError] = StoreError) -> str:
    """The message; everything must be as it was."""
    before = files(out.parent)
    with pytest.raises(kind) as caught:
        merge(sources, out)
    after = files(out.parent)
    assert {name: text for name, text in after.items() if not name.endswith("-wal")} == {
        name: text for name, text in before.items() if not name.endswith("-wal")
    }
    assert caught.value.hint
    return caught.value.message


def test_a_source_is_never_the_target(tmp_path: Path) -> None:
    a, b = record(tmp_path / "a.db"), record(tmp_path / "b.db", "b")
    assert "one of the files" in refused([a, b], a, UsageError)
    (tmp_path / "link.db").hardlink_to(a)
    assert "one of the files" in refused([a, b], tmp_path / "link.db", UsageError)


@pytest.mark.parametrize("content", ["database", "text", "empty"])
def test_an_existing_file_that_no_merge_made_is_left_alone(tmp_path: Path, content: str) -> None:
    out = tmp_path / "out.db"
    if content == "database":
        record(out)
    else:
        out.write_text("precious" if content == "text" else "")
    refused([record(tmp_path / "a.db")], out, IngeroError)


def test_no_link_is_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    (tmp_path / "out.db").symlink_to(elsewhere)
    with pytest.raises(IngeroError, match="symbolic link"):
        merge([record(tmp_path / "a.db")], tmp_path / "out.db")
    merge([tmp_path / "a.db"], elsewhere)
    refused([record(tmp_path / "b.db", "b")], tmp_path / "out.db", IngeroError)


def test_a_target_somebody_writes_is_left_alone(tmp_path: Path) -> None:
    a, b, out = record(tmp_path / "a.db"), record(tmp_path / "b.db", "b"), tmp_path / "out.db"
    merge([a], out)
    (tmp_path / "out.db-wal").write_bytes(b"x" * 100)
    assert "in use" in refused([b], out)


def test_a_file_that_came_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ingero.store.merge import result

    a, out = record(tmp_path / "a.db"), tmp_path / "out.db"
    told = result._told

    def late(*arguments, **named):
        out.write_text("somebody else's")
        return told(*arguments, **named)

    monkeypatch.setattr(result, "_told", late)
    with pytest.raises(StoreError, match="changed meanwhile"):
        merge([a], out)
    assert out.read_text() == "somebody else's"


def test_where_there_are_no_hard_links_the_result_appears_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    merge([record(tmp_path / "a.db")], tmp_path / "out.db")
    assert rows(tmp_path / "out.db", "events") == rows(tmp_path / "a.db", "events")


def test_a_missing_source_is_said(tmp_path: Path) -> None:
    assert "no database at" in refused([tmp_path / "none.db"], tmp_path / "out.db")


def test_an_interrupted_merge_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ingero.store.merge import result

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    a = record(tmp_path / "a.db")
    monkeypatch.setattr(result, "copy_source", interrupted)
    with pytest.raises(KeyboardInterrupt):
        merge([a], tmp_path / "out.db")
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(("-wal", "-shm"))] == ["a.db"]


def test_two_states_of_which_neither_has_all_are_refused(tmp_path: Path) -> None:
    a = record(tmp_path / "a.db")
    copy = tmp_path / "copy.db"
    copy.write_bytes(a.read_bytes())
    record(a, at_s=100)
    damage(a, "DELETE FROM event WHERE id = (SELECT MIN(id) FROM event)")  # as retention does
    assert "each has something the other lacks" in refused([a, copy], tmp_path / "out.db")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET id = id + (9 << 48)",
        "INSERT INTO node (id, name) VALUES (99999999, 'x')",
        "DROP TABLE recording",
        "UPDATE operation_second SET op_id = 77",
        "UPDATE node SET next_seq = 'many'",
        "UPDATE recording SET last_ns = 'late'",
        "UPDATE event SET ts_ns = 'soon'",
        "PRAGMA application_id = 5",
        "INSERT INTO migration (name, applied_ns) VALUES ('9999-from-the-future', 0)",
    ],
)
def test_a_damaged_source_is_refused(tmp_path: Path, statement: str) -> None:
    from tests.builders import operation

    with Writer(tmp_path / "a.db", "a", FakeTime().clock(), OPERATIONS) as writer:
        writer.write(window(calls=[call()], operations=[operation()]))
    assert "a.db" in refused([damage(tmp_path / "a.db", statement)], tmp_path / "out.db")


def test_a_view_under_the_name_of_a_table_is_not_run(tmp_path: Path) -> None:
    endless = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id, 1 AS node_id FROM n"
    )
    a = damage(record(tmp_path / "a.db"), "DROP TABLE event", f"CREATE VIEW event AS {endless}")
    assert "the table event is not a plain table" in refused([a], tmp_path / "out.db")


def test_a_database_of_an_older_version_is_upgraded_in_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = record(tmp_path / "a.db")
    before = a.read_bytes()
    later = Migration("0002-test", lambda connection: connection.execute("ALTER TABLE loss ADD COLUMN extra"))
    monkeypatch.setattr(migrations, "ALL", (*migrations.ALL, later))
    monkeypatch.setattr(migrations.upgrade, "__defaults__", (migrations.ALL,))
    monkeypatch.setattr(migrations.refuse_newer, "__defaults__", (migrations.ALL,))
    merge([a], tmp_path / "out.db")
    with Reader(tmp_path / "out.db") as reader:
        assert reader.rows("SELECT COUNT(*) FROM events") == [(1,)]
        assert reader.rows("SELECT name FROM migration ORDER BY number")[-1] == ("0002-test",)
    assert a.read_bytes() == before


def test_a_source_that_is_being_recorded_is_read_as_it_is(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.db", "a", FakeTime().clock(), OPERATIONS) as writer:
        writer.write(window(calls=[call()]))
        merge([tmp_path / "a.db"], tmp_path / "out.db")
        writer.write(window(SECOND, calls=[call(at_ns=SECOND)]))
        merge([tmp_path / "a.db"], tmp_path / "out.db")
    assert sum(rows(tmp_path / "out.db", "events").values()) == 2
