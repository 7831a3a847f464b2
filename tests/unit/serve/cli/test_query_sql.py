"""SQL on the command line: as people paste it, and with the numbers the tables show."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

from ingero.serve.cli.main import main
from ingero.serve.cli.query import EPILOG

PASTED = "-- launches\n-- of every job\nSELECT op, SUM(weight) AS calls\n  FROM cuda_events GROUP BY op;\n"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo") / "demo.db"
    assert main(["demo", "--no-gpu", "--no-tui", "--speed", "10000", "-d", str(path)]) == 0
    return path


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    capsys.readouterr()
    assert main(["query", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def counted(capsys: pytest.CaptureFixture[str], recording: Path, cuda: bool = True) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in asked(capsys, "-d", str(recording))["operations"]:
        if not cuda or row["layer"] != "nccl":  # they have a view of their own
            found[row["op"]] += row["count"]
    return found


def test_the_examples_of_the_help_give_the_numbers_of_the_tables(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [shlex.split(line) for line in EPILOG.splitlines() if "AS calls" in line]
    assert len(lines) == 2
    for _, _, sql in lines:
        answer = asked(capsys, "-d", str(recording), sql)
        assert answer["notes"] == []
        made = counted(capsys, recording, cuda="cuda_events" in sql)
        assert {row["op"]: row["calls"] for row in answer["rows"]} == made


def test_sql_may_begin_with_a_comment(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = asked(capsys, "-d", str(recording), PASTED)["rows"]
    assert {row["op"]: row["calls"] for row in rows} == counted(capsys, recording)
    assert asked(capsys, "-- one\r\nSELECT 1 AS a", "-d", str(recording))["rows"] == [{"a": 1}]
    assert asked(capsys, "--one\n/* two */ SELECT 2 AS a", "-d", str(recording))["rows"] == [{"a": 2}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-- nothing but a comment"], "there is no SQL to run"),
        (["-- harm\nDELETE FROM event"], "only reading is allowed"),
        (["DELETE FROM events"], "only reading is allowed"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_what_is_no_question_is_said(
    recording: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["query", "-d", str(recording), *arguments]) == 2
    assert re.search(said, capsys.readouterr().err, re.IGNORECASE)


def test_a_count_of_stored_rows_is_noted_beside_the_table(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["query", "-d", str(recording), "SELECT COUNT(*) FROM events"]) == 0
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert line.startswith("Note: ")
    assert "SUM(weight)" in line
    assert "Note" not in out
