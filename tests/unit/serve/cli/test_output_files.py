"""What is written with -o never costs somebody a recording."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

from ingero.errors import UsageError
from ingero.serve.cli.output import writing


def test_a_database_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "trace.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    before = path.read_bytes()
    with pytest.raises(UsageError, match="is a database"), writing(path) as file:
        file.write(b"something else")
    assert path.read_bytes() == before


def test_another_file_is(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with writing(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """One that everybody may write to, as /tmp."""
    made = tmp_path / "open"
    made.mkdir()
    made.chmod(0o1777)
    return made


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    made = tmp_path / "mine"
    made.mkdir()
    (made / "events.csv").write_text("precious")
    return made


def given_away(link: Path) -> None:
    """To a user that is neither we nor root."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a link of somebody else")
    os.chown(link, 12345, 12345, follow_symlinks=False)


@pytest.mark.parametrize("named", ["out/events.csv", "out/deeper/events.csv", "out/../out/events.csv"])
def test_a_link_of_somebody_else_in_an_open_folder_is_not_followed(
    open_folder: Path, mine: Path, named: str
) -> None:
    (mine / "deeper").mkdir()
    (open_folder / "out").symlink_to(mine)
    given_away(open_folder / "out")
    with pytest.raises(UsageError, match="another user") as raised, writing(open_folder / named) as file:
        file.write(b"theirs")
    assert raised.value.hint
    assert (mine / "events.csv").read_text() == "precious"
    assert sorted(each.name for each in mine.iterdir()) == ["deeper", "events.csv"]


@pytest.mark.parametrize("absolute", [True, False])
def test_a_link_of_ones_own_is_followed(open_folder: Path, mine: Path, absolute: bool) -> None:
    (open_folder / "out").symlink_to(mine if absolute else Path("../mine"))
    with writing(open_folder / "out/events.csv") as file:
        file.write(b"new")
    assert (mine / "events.csv").read_text() == "new"


def test_a_link_in_place_of_the_file_is_not_followed(open_folder: Path, mine: Path) -> None:
    (open_folder / "events.csv").symlink_to(mine / "events.csv")
    with pytest.raises(UsageError, match="not a plain file"), writing(open_folder / "events.csv") as file:
        file.write(b"theirs")
    assert (mine / "events.csv").read_text() == "precious"


def test_a_folder_exchanged_meanwhile_changes_nothing(tmp_path: Path, mine: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with writing(out / "events.csv") as file:
        file.write(b"new")
        out.rename(tmp_path / "moved")
        out.symlink_to(mine)
    assert (tmp_path / "moved/events.csv").read_text() == "new"
    assert (mine / "events.csv").read_text() == "precious"


def test_links_in_a_circle_and_what_is_no_folder_are_said(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "file").write_text("")
    for named in ("a/x", "file/x", "nowhere/x"):
        with pytest.raises(UsageError) as raised, writing(tmp_path / named):
            pass
        assert raised.value.hint


def test_a_file_half_written_leaves_nothing(tmp_path: Path) -> None:
    with suppress(RuntimeError), writing(tmp_path / "x") as file:
        file.write(b"half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_files_are_their_owners_only(tmp_path: Path) -> None:
    with writing(tmp_path / "x") as file:
        file.write(b"x")
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600
