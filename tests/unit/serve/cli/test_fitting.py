"""Tables fit the terminal: names and numbers whole, columns of less use left out by name."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ingero.serve.cli.fitting import Fitting
from ingero.serve.cli.statistics import COLUMNS

NAME = "cudaStreamCreateWithPriority"
ROW = (NAME, "~56,339 ±1,150", "989 ns", "21.4 ms", "26.3 ms", "34.4 ms", "238 ms", "72.3 %", "428 MiB", "")


def printed(table: Fitting, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, no_color=True).print(table)
    return out.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_names_and_units_are_whole_at_every_width(width: int) -> None:
    lines = printed(Fitting(COLUMNS, [ROW]), width).splitlines()
    assert max(map(len, lines)) <= width
    cells = [cell.strip() for cell in lines[3].split("│")[1:-1]]
    assert set(cells[1:]) <= set(ROW)
    assert "".join(line.split("│")[1].strip() for line in lines[3:-1] if "│" in line) == NAME


def test_columns_that_have_no_room_are_named() -> None:
    text = printed(Fitting(COLUMNS, [ROW]), 80).replace("\n", " ")
    assert "Operation" in text
    assert "Calls" in text
    assert "No room for: p50, p95, Total, Bytes. A wider terminal shows them." in text


def test_a_column_without_content_goes_first_and_unsaid() -> None:
    text = printed(Fitting(COLUMNS, [ROW]), 123)
    assert "Errors" not in text
    assert "No room" not in text
    assert "p95" in text


def test_with_room_for_all_nothing_goes() -> None:
    text = printed(Fitting(COLUMNS, [ROW]), 200)
    assert all(name in text for name in COLUMNS)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_name_is_never_broken_while_a_column_can_go(width: int) -> None:
    assert f"│ {NAME} │" in printed(Fitting(COLUMNS, [ROW]), width)


def test_what_failed_is_shown_at_every_width() -> None:
    failing = (*ROW[:-1], "19")
    for width in (80, 100, 120):
        text = printed(Fitting(COLUMNS, [failing]), width)
        assert "Errors" in text.splitlines()[1]
        assert "│     19 │" in text


def test_a_column_of_dashes_has_nothing_in_it() -> None:
    text = printed(Fitting(COLUMNS, [(*ROW[:-2], "-", "")]), 107)
    assert "Bytes" not in text
    assert "Total" in text


def test_a_path_is_broken_behind_a_slash() -> None:
    line = "_training.<locals>.step() at /repo/benchmarks/gpu/corpus/programs/work.py:23"
    table = Fitting(("Line", "Time"), [(line, "2.8 s")])
    cells = [text.split("│")[1].strip() for text in printed(table, 44).splitlines()[3:-1]]
    assert cells == ["_training.<locals>.step() at", "/repo/benchmarks/gpu/corpus/", "programs/work.py:23"]
