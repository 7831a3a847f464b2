"""A thousand files named like a library take a bounded number of keepers, and leave room for others."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingero.agent import library_files
from ingero.agent.library_files import IN_ALL, LOSS, PER_OWNER, LibraryRoom, warn
from ingero.agent.targets import Targets
from ingero.errors import AttachError

from .fakes import Here

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def made(folder: Path, name: str, owner: int) -> tuple[tuple[int, int], str]:
    path = folder / name
    path.touch()
    os.chown(path, owner, owner)
    about = path.stat()
    return (about.st_dev, about.st_ino), str(path)


class FakeSession:
    """Attaches whatever has room, and refuses what is called so."""

    def __init__(self) -> None:
        self.files: dict[tuple[int, int], str] = {}

    def attach(self, file: tuple[int, int], path_for_kernel: str, path: str, kind: str, hot: bool) -> None:
        if "bad" in path:
            raise AttachError(f"cannot attach to {path}: its tables overlap")
        self.files[file] = path


@pytest.fixture
def targets() -> Targets:
    found = Targets.__new__(Targets)
    found._session = FakeSession()  # type: ignore[assignment]
    found.room, found.warnings = LibraryRoom(Here()), {}
    return found


def library(file: tuple[int, int], path: str) -> Any:
    return SimpleNamespace(file=file, path=path, path_for_kernel=path, kind="driver")


@needs_root
def test_a_users_files_are_bounded_counted_and_said_and_others_have_room(
    targets: Targets, tmp_path: Path
) -> None:
    for number in range(PER_OWNER + 200):
        assert targets._attach_file(library(*made(tmp_path, f"libcuda.so.{number}", 4242)), hot=False)
    assert len(targets._session.files) == PER_OWNER
    targets._attach_file(library(*made(tmp_path, "libcuda.so.0", 4242)), hot=False)  # known: no news
    assert targets.room.losses() == {LOSS: 200}
    assert targets.room.losses() == {}
    assert any("64 library files of user 4242" in text for text in targets.warnings.values())
    for owner in (0, 4243):
        file, path = made(tmp_path, f"of-{owner}", owner)
        assert targets._attach_file(library(file, path), hot=False)
        assert file in targets._session.files


@needs_root
def test_files_are_bounded_in_all_and_released_ones_make_room(tmp_path: Path) -> None:
    room, attached = LibraryRoom(Here()), {}
    for number in range(IN_ALL + 40):
        file, path = made(tmp_path, str(number), 1000 + number)
        if not room.full(file, path, attached):
            attached[file] = path
    assert len(attached) == IN_ALL
    file, path = made(tmp_path, "new", 9000)
    assert room.full(file, path, attached)
    attached.pop(next(iter(attached)))
    assert room.full(file, path, attached) == ""


def test_a_file_that_cannot_be_read_is_counted_once(targets: Targets, tmp_path: Path) -> None:
    file, path = made(tmp_path, "bad", os.getuid())
    for _ in range(3):
        assert not targets._attach_file(library(file, path), hot=False)
    assert targets.room.losses() == {LOSS: 1}
    assert "its tables overlap" in targets.warnings[path]


def test_warnings_that_anybody_can_cause_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_files, "MOST_WARNINGS", 5)
    warnings: dict[str, str] = {}
    for number in range(100):
        warn(warnings, str(number), "wrong")
    warn(warnings, "0", "still wrong")
    assert len(warnings) == 6
    assert warnings["0"] == "still wrong"
    assert "more warnings" in warnings["more"]
