"""Root writes into a user's folder with that user's rights: a link put there meanwhile leads nowhere new.

Every test exchanges a folder between the look at it and its use, at the worst moment, and
then looks into the folder of root's that the link leads to.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingero import rights
from ingero.agent.starting import InstanceLock
from ingero.errors import PrivilegeError, StoreError, UsageError
from ingero.serve.cli.output import write_file
from ingero.serve.web import private_files
from ingero.serve.web.private_files import Folder, write_whole
from ingero.store import location, recording
from ingero.store.merge import result
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, call, fixed_clock, window

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to lend")
USER, GROUP = 65534, 65533
SECOND = 1_000_000_000


class Place:
    """A folder of a user's, and one of root's it may become a link to."""

    def __init__(self, top: Path) -> None:
        self.folder, self.roots, self._away = top / "user" / "folder", top / "roots", top / "user" / "away"
        for each in (top / "user", self.folder):
            each.mkdir(mode=0o755)
            os.chown(each, USER, GROUP)
        self.roots.mkdir(mode=0o755)

    @property
    def db(self) -> Path:
        return self.folder / "x.db"

    def exchange(self) -> None:
        self.folder.rename(self._away)
        self.folder.symlink_to(self.roots)
        os.chown(self.folder, USER, GROUP, follow_symlinks=False)

    def put_back(self) -> None:
        self.folder.unlink()
        self._away.rename(self.folder)


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Place(Path(name))


@pytest.fixture(params=["called by sudo", "root itself"])
def caller(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SUDO_UID", "SUDO_GID"):
        monkeypatch.delenv(name, raising=False)
    if request.param == "called by sudo":
        monkeypatch.setenv("SUDO_UID", str(USER))
        monkeypatch.setenv("SUDO_GID", str(GROUP))


def recorded(path: Path) -> None:
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        assert writer.write(window(calls=call())) == ""


@pytest.mark.usefixtures("caller")
def test_what_is_made_in_a_users_folder_is_the_users(place: Place) -> None:
    writer = Writer(place.folder / "new" / "x.db", "n", fixed_clock(), OPERATIONS)
    assert writer.write(window(calls=call())) == ""
    made = [place.folder / "new", *(place.folder / "new").iterdir()]
    assert {path.name for path in made} >= {"new", "x.db", "x.db-wal", "x.db-shm"}
    assert {path.stat().st_uid for path in made} == {USER}
    assert writer.close() == ""
    with Reader(place.folder / "new" / "x.db") as reader:
        assert reader.rows("SELECT COUNT(*) FROM events") == [(1,)]


@pytest.mark.usefixtures("caller")
@pytest.mark.parametrize("step", ["_make_directory", "refuse_links", "_make_file"])
def test_a_folder_exchanged_while_the_database_is_made_leads_nowhere(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    real = getattr(location, step)

    def exchanged_first(*words: object) -> object:
        if not place.folder.is_symlink():
            place.exchange()
        return real(*words)

    monkeypatch.setattr(location, step, exchanged_first)
    with pytest.raises(StoreError):
        recorded(place.db)
    assert list(place.roots.iterdir()) == []


@pytest.mark.usefixtures("caller")
@pytest.mark.parametrize("there", [False, True])
def test_a_folder_exchanged_before_sqlite_opens_the_database_leads_nowhere(
    place: Place, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    if there:  # a database of the same name, in root's folder
        recorded(place.roots / "x.db")
    before = {path.name: path.read_bytes() for path in place.roots.iterdir()}
    real = sqlite3.connect

    def exchanged_first(*words: Any, **more: Any) -> sqlite3.Connection:
        place.exchange()
        return real(*words, **more)

    monkeypatch.setattr(recording.sqlite3, "connect", exchanged_first)
    with pytest.raises(StoreError):
        recorded(place.db)
    assert {path.name: path.read_bytes() for path in place.roots.iterdir()} == before


@pytest.mark.usefixtures("caller")
def test_a_folder_exchanged_before_the_log_is_opened_leads_nowhere(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = location.require_open

    def exchanged_afterwards(*words: object) -> None:
        real(*words)  # type: ignore[arg-type]
        place.exchange()

    recorded(place.db)
    monkeypatch.setattr(location, "require_open", exchanged_afterwards)
    with pytest.raises(StoreError):
        recorded(place.db)
    assert list(place.roots.iterdir()) == []


@pytest.mark.usefixtures("caller")
def test_a_folder_exchanged_while_recording_leads_nowhere(place: Place) -> None:
    writer = Writer(place.db, "n", fixed_clock(), OPERATIONS)
    assert writer.write(window(calls=call())) == ""
    place.exchange()
    assert "removed or replaced" in writer.write(window(SECOND, calls=call()))
    writer.close()
    assert list(place.roots.iterdir()) == []


@pytest.mark.usefixtures("caller")
def test_the_result_of_a_merge_does_not_follow_an_exchanged_folder(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path / "of-root.db")
    real = result._build

    def exchanged_first(*words: object) -> object:
        place.exchange()
        return real(*words)  # type: ignore[arg-type]

    result.merge([tmp_path / "of-root.db"], place.folder / "first.db")
    assert (place.folder / "first.db").stat().st_uid == USER
    monkeypatch.setattr(result, "_build", exchanged_first)
    with pytest.raises(StoreError):
        result.merge([tmp_path / "of-root.db"], place.folder / "second.db")
    assert list(place.roots.iterdir()) == []


@pytest.mark.usefixtures("caller")
def test_a_secret_is_not_written_through_an_exchanged_folder(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.folder.chmod(0o700)
    folder = Folder(place.folder, (USER, GROUP))
    assert write_whole(folder, "token", b"x").stat().st_uid == USER
    real = private_files._replace

    def exchanged_first(*words: object) -> None:
        place.exchange()
        real(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(private_files, "_replace", exchanged_first)
    with pytest.raises(StoreError):
        write_whole(folder, "token", b"x")
    assert list(place.roots.iterdir()) == []


@pytest.mark.usefixtures("caller")
def test_a_report_is_not_written_over_a_link_in_a_users_folder(place: Place) -> None:
    place.exchange()
    with pytest.raises(UsageError, match="link of another user"):
        write_file(place.folder / "report.md", "x")
    assert list(place.roots.iterdir()) == []


@pytest.mark.usefixtures("caller")
def test_no_lock_is_made_in_a_folder_of_somebody_else(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGERO_RUN_DIR", str(place.folder))
    with pytest.raises(PrivilegeError, match="other users can change"):
        InstanceLock()
    monkeypatch.setenv("INGERO_RUN_DIR", str(place.roots))
    InstanceLock().release()


def test_a_folder_that_everybody_may_change_is_refused_to_root_on_the_way(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    deep = place.roots / "deep"
    deep.mkdir()
    assert rights.whose(deep) is None
    place.roots.chmod(0o777)
    with pytest.raises(StoreError, match="any user can change"):
        rights.whose(deep)
    place.roots.chmod(0o1777)
    assert rights.whose(deep) is None


def test_a_user_with_no_name_has_only_the_group_that_sudo_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "4000000")
    monkeypatch.setenv("SUDO_GID", "7")
    assert rights.invoking_user() == rights.User(4000000, 7, (7,))


def test_only_the_calling_thread_acts_as_the_user() -> None:
    def who() -> list[str]:
        lines = Path("/proc/thread-self/status").read_text().splitlines()
        return [line for line in lines if line.startswith(("Uid", "Gid", "Groups"))]

    before, asked, elsewhere = who(), threading.Event(), []

    def answer() -> None:
        asked.wait()
        elsewhere.extend(who())

    other = threading.Thread(target=answer)
    other.start()
    with rights.acting_as(rights.User(USER, GROUP, (GROUP,))):
        assert who() != before
        assert who()[0].split() == ["Uid:", "0", "0", "0", str(USER)]
        asked.set()
        other.join()
    assert who() == elsewhere == before
