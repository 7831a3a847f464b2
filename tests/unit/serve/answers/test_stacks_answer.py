"""Where calls come from."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from builders import OPERATIONS, call, fixed_clock, records, window

from ingero.errors import StoreError
from ingero.serve.answers.query import Range
from ingero.serve.answers.stacks import get_stacks
from ingero.store.writer import Writer


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "x.db"
    calls = records(
        call("cudaMalloc", 4_000, at_ns=1), call("cudaMalloc", 6_000, at_ns=2, weight=3),
        call("cudaFree", 50_000, at_ns=3, pid=200), call("cudaFree", 1_000, at_ns=4),
        call("cudaFree", 9_000_000, at_ns=5, nested=True),
    )  # fmt: skip
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        assert writer.write(window(calls=calls)) == ""
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE event SET stack_hash = CASE WHEN duration_ns = 1000 THEN NULL ELSE pid END"
        )
        connection.executemany(
            "INSERT INTO stack_frame VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (100, 1, "python", "train", "train.py", 142, None),
                (100, 0, "native", "cudaMalloc", None, None, "libcudart.so"),
                (200, 0, "python", "evaluate", "eval.py", 7, None),
            ],
        )
    connection.close()
    return path


def test_the_place_with_most_time_comes_first_with_its_frames(db: Path) -> None:
    answer = get_stacks(db, Range())
    assert [(each.op, each.calls, each.sum_ns, each.max_ns) for each in answer.stacks] == [
        ("cudaFree", 1, 50_000, 50_000),
        ("cudaMalloc", 4, 22_000, 6_000),
    ]
    assert [frame.function for frame in answer.stacks[1].frames] == ["cudaMalloc", "train"]
    assert (answer.stacks[1].frames[1].file, answer.stacks[1].frames[1].line) == ("train.py", 142)
    assert (answer.rows, answer.without) == (4, 1)


def test_it_can_be_asked_about_one_process_or_operation(db: Path) -> None:
    assert [each.op for each in get_stacks(db, Range(), pid=100).stacks] == ["cudaMalloc"]
    assert [each.pid for each in get_stacks(db, Range(), op="cudaFree").stacks] == [200]
    assert len(get_stacks(db, Range(), limit=1).stacks) == 1


def test_text_for_a_number_is_a_damaged_file(db: Path) -> None:
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE event SET duration_ns = 'long'")
    connection.close()
    with pytest.raises(StoreError, match="make no sense"):
        get_stacks(db, Range())
