"""Where calls come from."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from ingero.errors import StoreError
from ingero.model.finding import SourceLine
from ingero.model.stack import ResolvedStack
from ingero.serve.answers.query import Range
from ingero.serve.answers.stacks import get_stacks
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, FakeTime, call, records, wait, window
from tests.sites import frames, resolved

TRAIN, EVALUATE = 11, 12


def write(path: Path, at_s: int = 0) -> None:
    """A recording that begins then."""
    time, start_ns = FakeTime(), at_s * SECOND
    time.advance(start_ns)
    calls = records(
        call("cudaMalloc", 4_000, at_ns=start_ns + 1),
        call("cudaMalloc", 6_000, at_ns=start_ns + 2, weight=3),
        call("cudaFree", 50_000, at_ns=start_ns + 3, pid=200),
        call("cudaFree", 1_000, at_ns=start_ns + 4),
        call("cudaFree", 9_000_000, at_ns=start_ns + 5, nested=True),
    )
    with Writer(path, "n", time.clock(), OPERATIONS) as writer:
        made = window(
            start_ns,
            calls=calls,
            call_stacks=np.array([TRAIN, TRAIN, EVALUATE, 0, TRAIN], np.int64),
            waits=[wait("disk_wait", 20_000, at_ns=start_ns + 9_000)],
            wait_stacks=np.array([EVALUATE], np.int64),
            stacks=[
                resolved("train train.py:142", TRAIN),
                ResolvedStack(EVALUATE, frames("evaluate eval.py:7")[:1]),
            ],
        )
        assert writer.write(made) == ""


@pytest.fixture
def db(tmp_path: Path) -> Path:
    write(tmp_path / "x.db")
    return tmp_path / "x.db"


def test_the_place_with_most_time_comes_first_with_its_frames(db: Path) -> None:
    answer = get_stacks(db, Range())
    assert [(each.op, each.calls, each.sum_ns, each.max_ns) for each in answer.stacks] == [
        ("cudaFree", 1, 50_000, 50_000),
        ("cudaMalloc", 4, 22_000, 6_000),
        ("disk_wait", 1, 20_000, 20_000),
    ]
    allocated = answer.stacks[1].frames
    assert [frame.function for frame in allocated] == [
        "cudaLaunchKernel", "Module._call_impl", "train", "main",
    ]  # fmt: skip
    assert (allocated[2].file, allocated[2].line, allocated[0].module) == ("train.py", 142, "libcudart.so.12")
    assert (answer.rows, answer.without) == (5, 1)


def test_the_line_is_the_users_own_and_none_where_no_python_was_seen(db: Path) -> None:
    answer = get_stacks(db, Range())
    assert [each.source for each in answer.stacks] == [None, SourceLine("train.py", 142, "train"), None]


def test_a_place_that_two_recordings_have_is_one(db: Path) -> None:
    write(db, at_s=10)
    answer = get_stacks(db, Range(since="1h"))
    assert [(each.op, each.calls, each.sum_ns) for each in answer.stacks] == [
        ("cudaFree", 2, 100_000), ("cudaMalloc", 8, 44_000), ("disk_wait", 2, 40_000),
    ]  # fmt: skip
    assert (answer.rows, answer.without) == (10, 2)


def test_it_can_be_asked_about_one_process_or_operation(db: Path) -> None:
    assert [each.op for each in get_stacks(db, Range(), pid=100).stacks] == ["cudaMalloc", "disk_wait"]
    assert [each.pid for each in get_stacks(db, Range(), op="cudaFree").stacks] == [200]
    assert len(get_stacks(db, Range(), limit=1).stacks) == 1


def test_text_for_a_number_is_a_damaged_file(db: Path) -> None:
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE event SET duration_ns = 'long'")
    connection.close()
    with pytest.raises(StoreError, match="cannot be right"):
        get_stacks(db, Range())


def test_a_stack_that_cannot_be_read_has_no_frames(db: Path) -> None:
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE stack SET frames = '[1, {' WHERE hash = ?", (TRAIN,))
    connection.close()
    answer = get_stacks(db, Range())
    assert (answer.stacks[1].op, answer.stacks[1].frames) == ("cudaMalloc", [])
