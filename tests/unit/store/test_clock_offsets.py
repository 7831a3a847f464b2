"""Offsets of clocks are kept with a merge, and recorded times stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingero.errors import UsageError
from ingero.model.clocks import ClockOffset, Clocks
from ingero.serve.answers.merging import offset_of
from ingero.serve.cli.main import main
from ingero.store.clock_rows import read_offsets
from ingero.store.merge.result import merge
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, FakeTime, call, window

MS = 1_000_000
NODES = ("a", "b", "c")


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    for node in NODES:
        with Writer(tmp_path / f"{node}.db", node, FakeTime().clock(), OPERATIONS) as writer:
            assert writer.write(window(calls=[call(at_ns=10)])) == ""
    return [tmp_path / f"{node}.db" for node in NODES]


def offsets(path: Path) -> dict[str, list[ClockOffset]]:
    with Reader(path) as reader:
        return Clocks.of(read_offsets(reader.connection)).by_node


def times(path: Path) -> list[tuple[object, ...]]:
    with Reader(path) as reader:
        return reader.rows("SELECT node, timestamp FROM events ORDER BY node")


def test_what_is_given_is_kept_and_nothing_is_shifted(parts: list[Path], tmp_path: Path) -> None:
    merge(parts, tmp_path / "plain.db")
    merge(parts, tmp_path / "all.db", offsets=[ClockOffset("b", 0, 80 * MS, 2 * MS)])
    assert times(tmp_path / "all.db") == times(tmp_path / "plain.db")
    found = offsets(tmp_path / "all.db")
    assert found["b"] == [ClockOffset("b", 0, 80 * MS, 2 * MS, "given")]
    assert found["a"] == [ClockOffset("a", 0, 0, 2 * MS, "given")]
    assert offsets(tmp_path / "plain.db") == {}


def test_what_was_measured_says_nothing_about_other_nodes(parts: list[Path], tmp_path: Path) -> None:
    measured = [ClockOffset("b", 0, 5, 1, "measured"), ClockOffset("b", 9, 7, 1, "measured", 1e-6)]
    merge(parts, tmp_path / "all.db", offsets=measured)
    assert offsets(tmp_path / "all.db") == {"b": measured}


def test_offsets_stay_when_more_is_merged_and_better_ones_replace_them(
    parts: list[Path], tmp_path: Path
) -> None:
    target = tmp_path / "all.db"
    merge(parts[:2], target, offsets=[ClockOffset("b", 0, 80 * MS, MS)])
    merge(parts[2:], target)
    assert offsets(target)["b"][0].offset_ns == 80 * MS
    assert "c" not in offsets(target)
    merge(parts, target, offsets=[ClockOffset("b", 0, 79 * MS, MS), ClockOffset("c", 0, -MS, MS)])
    assert [offsets(target)[node][0].offset_ns for node in NODES] == [0, 79 * MS, -MS]


def test_a_node_that_is_in_no_file_is_wrong_usage(parts: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names 'd', which is in none of the files"):
        merge(parts, tmp_path / "all.db", offsets=[ClockOffset("d", 0, 1)])
    assert not (tmp_path / "all.db").exists()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gpu-node-02=80ms", ClockOffset("gpu-node-02", 0, 80 * MS, MS)),
        ("n=-33.5ms~2ms", ClockOffset("n", 0, -33_500_000, 2 * MS)),
        ("a=b=+1s~500us", ClockOffset("a=b", 0, SECOND, 500_000)),
    ],
)
def test_an_offset_is_written_with_its_error(text: str, wanted: ClockOffset) -> None:
    assert offset_of(text) == wanted


@pytest.mark.parametrize("text", ["", "n", "n=", "n=80", "=80ms", "n=80ms~", "n=--3ms", "n=1.2.3ms"])
def test_what_is_no_offset_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        offset_of(text)


def test_the_command_takes_offsets(parts: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "all.db"
    words = ["merge", *map(str, parts), "-o", str(target), "--clock-offset", "b=80ms~3ms"]
    assert main(words) == 0
    assert offsets(target)["b"] == [ClockOffset("b", 0, 80 * MS, 3 * MS, "given")]


def test_a_clock_that_drifts_is_ahead_by_more_later() -> None:
    import numpy as np

    clocks = Clocks.of([ClockOffset("n", 100, 10, 1, rate=0.5), ClockOffset("n", 200, 60, 2)])
    assert clocks.offset_ns("n", np.array([0, 100, 150, 200, 300])).tolist() == [10, 10, 35, 60, 60]
    assert (clocks.error_ns("n", 0), clocks.error_ns("n", 250), clocks.error_ns("other", 0)) == (1, 2, None)
    assert clocks.own_ns("n", 300) == 360
