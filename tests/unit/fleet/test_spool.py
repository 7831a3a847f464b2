"""What nobody has taken yet waits on disk: bounded, in order, whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingero.errors import StoreError
from ingero.fleet.push.spool import Batch, Spool

RUN = "0123456789abcdef"


def batch(number: int, size: int = 10, signal: str = "metrics", run: str = RUN) -> Batch:
    return Batch(number * 10**9, run, number, signal, b"x" * size)


def drained(spool: Spool) -> list[int]:
    found = []
    while (each := spool.oldest()) is not None:
        found.append(each.number)
        spool.done(each)
    return found


def test_the_oldest_comes_first_and_leaves_when_it_is_taken(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    for number in (1, 2, 3):
        spool.put(batch(number))
    assert spool.oldest() == batch(1)
    assert spool.oldest() == batch(1)  # until it was taken
    assert drained(spool) == [1, 2, 3]
    assert list((tmp_path / "s").iterdir()) == []
    assert spool.bytes == 0


def test_what_does_not_fit_pushes_the_oldest_out_and_is_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", most_bytes=35)
    for number in range(1, 8):
        spool.put(batch(number))
    assert spool.dropped == 4
    assert drained(spool) == [5, 6, 7]


def test_the_number_of_files_is_bounded_too(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", most_files=2)
    for number in range(1, 6):
        spool.put(batch(number, size=1))
    assert (len(spool), spool.dropped) == (2, 3)


def test_the_next_agent_sends_what_the_last_one_left(tmp_path: Path) -> None:
    first = Spool(tmp_path / "s")
    first.put(batch(1))
    first.put(batch(2, run="f" * 16))
    (tmp_path / "s" / ".half").write_bytes(b"cut off")
    (tmp_path / "s" / "somebody elses").write_bytes(b"")
    again = Spool(tmp_path / "s")
    assert again.oldest() == batch(1)
    assert drained(again) == [1, 2]
    assert [each.name for each in (tmp_path / "s").iterdir()] == ["somebody elses"]


def test_a_file_that_was_cut_or_removed_is_skipped_and_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    for number in (1, 2, 3):
        spool.put(batch(number))
    (tmp_path / "s" / batch(1).file).unlink()
    (tmp_path / "s" / batch(2).file).write_bytes(b"x")
    assert drained(spool) == [3]
    assert spool.dropped == 2


def test_a_disk_that_does_not_take_it_loses_it_aloud(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    (tmp_path / "s").rmdir()
    spool.put(batch(1))
    assert (len(spool), spool.dropped) == (0, 1)


def test_a_folder_others_can_change_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(StoreError, match="others"):
        Spool(folder)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="others"):
        Spool(tmp_path / "link")
