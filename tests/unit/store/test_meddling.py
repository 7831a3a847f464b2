"""Other programs may do anything to a database that is recorded into: the trace goes on, and tells."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from ingero.errors import StoreError
from ingero.model.window import Window
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, call, culprit, fixed_clock, operation, thread, wait, window

BLAMED = "another program changed the database"


def second(number: int) -> Window:
    at = number * SECOND
    return window(
        at,
        calls=[call(at_ns=at + 1)],
        waits=[wait(at_ns=at + 2)],
        operations=[operation()],
        threads=[thread(cuda_cpu=5)],
        culprits=[culprit()],
    )


def recorded(path: Path, meddle: Callable[[Path], None]) -> Writer:
    """Three seconds, then somebody meddles, then five more."""
    writer = Writer(path, "n1", fixed_clock(), OPERATIONS)
    for number in range(3):
        assert writer.write(second(number)) == ""
    meddle(path)
    for number in range(3, 8):
        writer.write(second(number))
    return writer


def statements(text: str) -> Callable[[Path], None]:
    def meddle(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(text)

    return meddle


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE event",
        "CREATE TRIGGER t AFTER INSERT ON event BEGIN SELECT RAISE(ABORT, 'no'); END",
        "ALTER TABLE thread_second RENAME TO other",
        "ALTER TABLE recording RENAME COLUMN last_ns TO other",
        "DELETE FROM recording; DELETE FROM process; DELETE FROM string",
        "DROP TABLE window",
    ],
)
def test_a_database_made_unfit_is_said_and_ends_nothing(text: str, path: Path) -> None:
    writer = recorded(path, statements(text))
    assert writer.status.startswith(BLAMED)
    assert writer.close().startswith(BLAMED)
    assert writer.dropped["store_backlog"] > 0


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE event ADD COLUMN more NOT NULL DEFAULT 5",
        "CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)",
        "CREATE INDEX more ON event (op_id)",
        "CREATE TRIGGER t AFTER INSERT ON event BEGIN UPDATE event SET duration_ns = 0; END",
    ],
)
def test_what_does_no_harm_to_writing_is_written_to(text: str, path: Path) -> None:
    writer = recorded(path, statements(text))
    assert writer.close() == ""
    with Reader(path) as reader:
        assert reader.rows("SELECT COUNT(*) FROM cuda_events") == [(8,)]


def test_a_mistake_of_ours_keeps_its_traceback(path: Path) -> None:
    with Writer(path, "n1", fixed_clock(), OPERATIONS) as writer, pytest.raises(sqlite3.OperationalError):
        writer._attempt(lambda: writer._connection.execute("SELECT nothing FROM nowhere"))  # type: ignore[arg-type,return-value]


def overwritten(end: str) -> Callable[[Path], None]:
    def meddle(path: Path) -> None:
        beside = Path(f"{path}{end}")
        with beside.open("r+b") as file:
            file.write(os.urandom(beside.stat().st_size))

    return meddle


@pytest.mark.parametrize(
    "meddle",
    [
        overwritten("-wal"),
        overwritten("-shm"),
        lambda path: os.truncate(f"{path}-wal", 0),
        lambda path: Path(f"{path}-wal").unlink(),
        lambda path: os.truncate(path, 4096),
    ],
    ids=["log ruined", "index ruined", "log cut", "log removed", "file cut"],
)
def test_files_that_are_ruined_end_in_rows_or_a_clear_error(
    meddle: Callable[[Path], None], path: Path
) -> None:
    recorded(path, meddle).close()
    with suppress(StoreError), Reader(path) as reader:
        assert reader.rows("SELECT COUNT(*) FROM event")


@pytest.mark.parametrize(
    "meddle",
    [overwritten("-wal"), lambda path: os.truncate(f"{path}-wal", 0)],
    ids=["log ruined", "log cut"],
)
def test_a_recording_that_cannot_be_read_again_is_said_and_counted(
    meddle: Callable[[Path], None], path: Path
) -> None:
    writer = recorded(path, meddle)
    assert "cannot be read again" in writer.close()
    assert writer.dropped["store_backlog"] > 0


def test_a_recording_nobody_touched_ends_without_a_word(path: Path) -> None:
    writer = recorded(path, lambda path: None)
    assert writer.close() == ""
    assert writer.dropped["store_backlog"] == 0


def test_an_index_cut_short_is_mended_and_nothing_is_lost(path: Path) -> None:
    """In a process of its own: what it would get is a SIGBUS."""
    program = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from tests.unit.store.test_meddling import recorded
writer = recorded(Path({str(path)!r}), lambda path: os.truncate(f"{{path}}-shm", 0))
print(repr(writer.status))
os.truncate(f"{{writer.path}}-shm", 100)
writer.facts()
os.truncate(f"{{writer.path}}-shm", 0)
print(repr(writer.close()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["''", "''"]
    with Reader(path) as reader:
        assert reader.rows("SELECT COUNT(*) FROM cuda_events") == [(8,)]
        assert reader.rows("PRAGMA integrity_check") == [("ok",)]


def test_a_link_in_the_place_of_the_index_is_not_followed(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"")
    with Writer(path, "n1", fixed_clock(), OPERATIONS) as writer:
        index = Path(f"{path}-shm")
        index.rename(tmp_path / "kept")
        index.symlink_to(other)
        assert "cannot be mended" in writer.write(second(0))
        index.unlink()
        (tmp_path / "kept").rename(index)
    assert other.read_bytes() == b""
