"""`ingero export --format folded`: what it writes, and what it says when there is nothing to write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ingero.serve.cli.main import main
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, call, fixed_clock, process, window
from tests.sites import resolved


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    with Writer(path, "n1", fixed_clock(), OPERATIONS) as writer:
        made = window(
            calls=[call(), call(), call("cudaFree")],
            call_stacks=np.array([11, 11, 0], np.int64),
            stacks=[resolved("forward train.py:142", 11)],
            processes=[process()],
        )
        assert writer.write(made) == ""
    return path


def test_folded_stacks_go_to_standard_output(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--format", "folded", "-d", str(db)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("python (100);main (train.py:1);forward (train.py:142);")
    assert [line.rpartition(" ")[2] for line in lines] == ["2", "1"]


def test_or_to_a_file(db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "calls.folded"
    assert main(["export", "--format", "folded", "--op", "cudaFree", "-o", str(file), "-d", str(db)]) == 0
    assert file.read_text() == "python (100);[no stack] 1\n"
    said = capsys.readouterr()
    assert (said.out, "1 stacks" in said.err) == ("", True)


def test_nothing_to_write_is_an_error_with_a_hint(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--format", "folded", "--what", "samples", "-d", str(db)]) == 1
    said = capsys.readouterr()
    assert "there are no samples to write" in said.err
    assert "hint:" in said.err


def test_the_format_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export"]) == 2
    assert "--format" in capsys.readouterr().err


def test_stacks_do_not_go_into_a_folder(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--format", "folded", "-o", str(db.parent), "-d", str(db)]) == 2
    assert "one file" in capsys.readouterr().err


def test_nodes_of_a_merged_database_are_told_apart(
    db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, both = tmp_path / "b.db", str(tmp_path / "both.db")
    with Writer(other, "n2", fixed_clock(), OPERATIONS) as writer:
        assert writer.write(window(calls=[call("cudaFree")], processes=[process()])) == ""
    assert main(["merge", str(db), str(other), "-o", both]) == 0
    capsys.readouterr()
    assert main(["export", "--format", "folded", "--op", "cudaFree", "-d", both]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "n1;python (100);[no stack] 1",
        "n2;python (100);[no stack] 1",
    ]
    assert main(["export", "--format", "folded", "--node", "n2", "-d", both]) == 0
    assert capsys.readouterr().out.splitlines() == ["python (100);[no stack] 1"]
