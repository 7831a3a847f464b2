from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingero.errors import StoreError, StoreVersionError
from ingero.store import location, migrations
from ingero.store.migrations import Migration
from ingero.store.reader import Reader
from ingero.store.recording import connect
from ingero.store.views import VIEWS
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, call, fixed_clock, window

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root is not allowed to follow links")
SPEC_VIEWS = {
    "events": "id node timestamp pid tid comm source op duration gpu_id arg0 arg1 ret_code stack_hash "
    "cgroup_id rank local_rank world_size weight",
    "cuda_events": "id node timestamp_ns pid tid gpu_id layer op caller kernel_name duration_ns bytes "
    "direction stream ret cgroup_id stack_hash weight",
    "calls": "id node timestamp_ns pid tid gpu_id layer op caller kernel_name duration_ns bytes "
    "direction stream ret cgroup_id stack_hash weight",
    "nccl_events": "id node timestamp_ns pid tid op comm_hash seq rank nranks bytes datatype reduce_op peer "
    "duration_ns wait_ns cgroup_id weight",
    "containers": "cgroup_id node container_id runtime pod namespace job",
    "operations": "node pid layer op caller bucket_start_ns count exact count_error sum_ns min_ns max_ns "
    "p50_ns p95_ns p99_ns bytes",
    "thread_time": "node pid tid comm bucket_start_ns bucket ns",
    "culprits": "node victim_pid victim_tid pid comm bucket bucket_start_ns ns count",
    "wakers": "node pid tid waker_pid waker_tid waker bucket_start_ns ns count",
    "findings": "id node kind severity title first_ns last_ns confidence pid tid op excess_ns wall_share "
    "explained_share source_file source_line source_function json",
    "losses": "node start_ns end_ns reason count",
    "processes": "node pid start_ns end_ns comm cmdline cgroup_id rank local_rank world_size uid",
    "samples": "node pid tid bucket_start_ns stack_hash bucket op collecting gil kernel count",
    "stacks": "stack_hash depth kind function file line module",
    "stack_text": "stack_hash text",
}


def _recorded(path: Path) -> Path:
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        writer.write(window(calls=call()))
    return path


@pytest.mark.parametrize("view", SPEC_VIEWS)
def test_views_have_the_promised_columns_in_order(path: Path, view: str) -> None:
    connection = connect(path)
    cursor = connection.execute(f"SELECT * FROM {view}")
    assert " ".join(column[0] for column in cursor.description) == SPEC_VIEWS[view]
    connection.close()


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="no sqlite3 shell here")
@pytest.mark.parametrize("view", [*SPEC_VIEWS, "call_time"])
def test_views_work_in_the_plain_shell(path: Path, view: str) -> None:
    _recorded(path)
    done = subprocess.run(
        ["sqlite3", path, f"SELECT COUNT(*) FROM {view}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().isdecimal()


def test_an_older_database_is_upgraded_and_keeps_its_rows(path: Path) -> None:
    older = (Migration("0001-a", lambda c: c.execute("CREATE TABLE t (x)") and None),)
    newer = (
        *older,
        Migration("0002-b", lambda c: c.execute("ALTER TABLE t ADD COLUMN y DEFAULT 5") and None),
    )
    connection = sqlite3.connect(path, isolation_level=None)
    assert migrations.upgrade(connection, path, older) == ["0001-a"]
    connection.execute("INSERT INTO t VALUES (1)")
    assert migrations.upgrade(connection, path, newer) == ["0002-b"]
    assert migrations.upgrade(connection, path, newer) == []
    assert connection.execute("SELECT x, y FROM t").fetchall() == [(1, 5)]
    connection.close()


def test_collectives_of_an_older_database_have_a_weight_too(path: Path) -> None:
    _recorded(path)
    older = VIEWS["nccl_events"].replace(", e.weight AS weight", "")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DROP VIEW nccl_events")
    connection.execute(f"CREATE VIEW nccl_events AS {older}")
    connection.execute("DELETE FROM migration WHERE name = '0008-collective-weight'")
    with Reader(path) as reader:  # read as it is
        assert reader.rows("SELECT SUM(weight) FROM nccl_events") == [(None,)]
    assert migrations.upgrade(connection, path) == ["0008-collective-weight"]
    assert connection.execute("SELECT SUM(weight) FROM nccl_events").fetchall() == [(None,)]
    connection.close()


def test_a_step_that_fails_leaves_no_trace_of_itself(path: Path) -> None:
    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE half (x)")
        raise sqlite3.OperationalError("disk trouble")

    first = Migration("0001-a", lambda c: c.execute("CREATE TABLE t (x)") and None)
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        migrations.upgrade(connection, path, (first, Migration("0002-b", broken)))
    assert migrations.applied_names(connection, path) == ["0001-a"]
    assert connection.execute("SELECT COUNT(*) FROM sqlite_master WHERE name = 'half'").fetchone() == (0,)
    connection.close()


def test_a_newer_database_is_refused_for_writing_and_reading(path: Path) -> None:
    connection = connect(path)
    connection.execute("INSERT INTO migration (name, applied_ns) VALUES ('0099-future', 0)")
    connection.close()
    for opening in (Reader, connect):
        with pytest.raises(StoreVersionError, match="newer ingero"):
            opening(path)


@pytest.mark.parametrize(
    "content",
    [b"this is a letter to my mother, and quite a long one\n" * 50, b"SQLite format 3\0" + b"\xff" * 5000],
)
def test_a_foreign_or_broken_file_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for opening in (Reader, connect):
        with pytest.raises(StoreError):
            opening(path)
    assert path.read_bytes() == content


def test_somebody_elses_sqlite_database_is_refused_and_left_alone(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE precious (x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    for opening in (Reader, connect):
        with pytest.raises(StoreVersionError, match="not an ingero database"):
            opening(path)
    assert path.read_bytes() == before


def test_a_database_cut_short_is_refused_or_reported(path: Path) -> None:
    _recorded(path)
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(StoreError):
        Reader(path).rows("SELECT COUNT(*) FROM events")


def test_who_has_no_recording_is_told_of_the_services(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = path.with_name("services.db")
    monkeypatch.setattr(location, "SERVICES", services)
    hints = []
    for make in (lambda: None, services.touch):
        make()
        with pytest.raises(StoreError, match="there is no database") as raised:
            Reader(path)
        hints.append(raised.value.hint)
    assert [str(services) in str(hint) for hint in hints] == [False, True]


def test_a_missing_or_empty_database_says_how_to_make_one(path: Path) -> None:
    with pytest.raises(StoreError, match="there is no database"):
        Reader(path)
    path.touch()
    with pytest.raises(StoreError, match="empty"):
        Reader(path)
    with pytest.raises(StoreError, match="directory"):
        Reader(path.parent)


def test_the_file_is_private_and_announces_itself(path: Path) -> None:
    _recorded(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (migrations.APPLICATION_ID,)
    assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    connection.close()


@needs_root
def test_under_sudo_file_and_directory_belong_to_the_caller(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65533")
    path = shelf / "new" / "deep" / "x.db"
    writer = Writer(path, "n", fixed_clock(), OPERATIONS)
    writer.write(window(calls=call()))
    owners = {
        (p.stat().st_uid, p.stat().st_gid) for p in (path.parent, path.parent.parent, *path.parent.iterdir())
    }
    writer.close()
    assert owners == {(65534, 65533)}
    assert shelf.stat().st_uid == 0


@needs_root
@pytest.mark.parametrize("name", ["x.db", "x.db-wal", "x.db-shm"])
def test_as_root_no_link_is_followed(tmp_path: Path, name: str) -> None:
    target = tmp_path / "shadow"
    target.touch()
    (tmp_path / name).symlink_to(target)
    with pytest.raises(StoreError, match="symbolic link"):
        connect(tmp_path / "x.db")
    assert target.read_bytes() == b""


@needs_root
def test_as_root_no_directory_link_of_another_user_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    connect(link / "a.db").close()  # root's own link is fine
    os.chown(link, 65534, 65534, follow_symlinks=False)
    with pytest.raises(StoreError, match="another user"):
        connect(link / "b.db")


def test_a_directory_or_device_is_no_database(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(StoreError):
            connect(path)


def test_the_default_place_follows_the_environment_then_the_caller_of_sudo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("INGERO_DB", "/data/x.db")
    assert location.default_path() == Path("/data/x.db")
    monkeypatch.delenv("INGERO_DB")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert location.default_path() == Path("/home/me/.ingero/ingero.db")
    if os.geteuid() == 0:
        monkeypatch.setenv("SUDO_UID", "1")
        monkeypatch.setenv("SUDO_GID", "1")
        assert location.default_path() == Path("/usr/sbin/.ingero/ingero.db")


def test_what_was_recorded_last_is_read_a_demo_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INGERO_DB", raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ingero"
    folder.mkdir()
    usual, demo = folder / "ingero.db", folder / "demo.db"
    assert location.last_path() == usual  # none there: the usual one is missed
    demo.touch()
    os.utime(demo, (1000, 1000))
    assert location.last_path() == demo
    usual.touch()
    os.utime(usual, (2000, 2000))
    assert location.last_path() == usual
    (folder / "demo.db-wal").touch()  # a demo that is going on
    assert location.last_path() == demo
    monkeypatch.setenv("INGERO_DB", str(usual))
    assert location.last_path() == usual


def _as_nobody(question: Callable[[], object]) -> str:
    """What the question answers for somebody who, unlike root, may not write everywhere."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            said = str(question())
        except BaseException as error:
            said = repr(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        return answer.read()


@pytest.fixture
def shelf() -> Iterator[Path]:
    """A directory every user can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


def _ask(path: Path) -> list[tuple[object, ...]]:
    return Reader(path).rows("SELECT COUNT(*) FROM events")


def test_a_read_only_directory_can_be_read(shelf: Path) -> None:
    path = _recorded(shelf / "x.db")
    path.chmod(0o444)
    shelf.chmod(0o555)
    assert _as_nobody(lambda: _ask(path)) == "[(1,)]"


def test_a_read_only_directory_with_an_unfinished_log_is_read_with_it_or_refused(shelf: Path) -> None:
    path = shelf / "x.db"
    writer = Writer(path, "n", fixed_clock(), OPERATIONS)
    writer.write(window(calls=call()))
    for file in shelf.iterdir():
        file.chmod(0o444)
    shelf.chmod(0o555)
    said = _as_nobody(lambda: _ask(path))
    writer.close()
    assert said == "[(1,)]" or "StoreError" in said


def test_a_file_of_somebody_else_is_a_clear_error(shelf: Path) -> None:
    path = _recorded(shelf / "x.db")
    path.chmod(0o000)
    assert "StoreError" in _as_nobody(lambda: _ask(path))


def test_reading_while_somebody_writes_sees_what_is_complete(path: Path) -> None:
    writer = Writer(path, "n", fixed_clock(), OPERATIONS)
    writer.write(window(calls=call()))
    with Reader(path) as reader:
        assert reader.rows("SELECT COUNT(*) FROM events") == [(1,)]
        writer.write(window(10**9, calls=call()))
        assert reader.rows("SELECT COUNT(*) FROM events") == [(2,)]
    writer.close()


def test_odd_characters_in_a_path_are_no_options(tmp_path: Path) -> None:
    path = _recorded(tmp_path / "a?mode=rwc&b#c %20.db")
    with Reader(path) as reader:
        assert reader.rows("SELECT COUNT(*) FROM events") == [(1,)]


def test_broken_text_in_a_database_is_shown_not_raised(path: Path) -> None:
    _recorded(path)
    other = sqlite3.connect(path)
    other.execute("UPDATE string SET text = CAST(X'6162FF' AS TEXT)")
    other.commit()
    other.close()
    with Reader(path) as reader:
        assert reader.rows("SELECT comm FROM events") == [("ab\ufffd",)]
