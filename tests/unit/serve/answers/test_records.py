"""`trace --json`: records with their stacks, each stack told once."""

from __future__ import annotations

import msgspec
import numpy as np

from ingero.model.stack import Frame, ResolvedStack
from ingero.serve.answers.records import RecordStream
from ingero.serve.answers.schemas import TraceLine
from tests.builders import OPERATIONS, SECOND, call, fixed_clock, wait, window
from tests.sites import resolved

FORWARD = resolved("forward train.py:142", 11)


def stream() -> RecordStream:
    return RecordStream(OPERATIONS, fixed_clock(), "n1")


def hashes(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_the_first_line_with_a_stack_has_its_frames() -> None:
    lines = list(
        stream().lines(
            window(
                calls=[call(), call(), call()],
                call_stacks=hashes(11, 0, 11),
                waits=[wait()],
                wait_stacks=hashes(11),
                stacks=[FORWARD],
            )
        )
    )
    assert [line["stack_hash"] for line in lines] == [11, None, 11, 11]
    assert ["stack" in line for line in lines] == [True, False, False, False]
    assert lines[0]["stack"][2] == {
        "kind": "python", "function": "forward", "file": "train.py", "line": 142, "module": None,
    }  # fmt: skip


def test_a_stack_told_later_comes_with_the_next_line_that_has_it() -> None:
    records = stream()
    (first,) = records.lines(window(calls=[call()], call_stacks=hashes(11)))
    (second,) = records.lines(window(SECOND, calls=[call()], call_stacks=hashes(11), stacks=[FORWARD]))
    assert "stack" not in first
    assert len(second["stack"]) == 4


def test_lines_are_what_the_schema_says() -> None:
    evil = ResolvedStack(7, (Frame("python", "a\x1b[2J", None, None, "m" * 9999),))
    made = window(calls=[call()], call_stacks=hashes(7), stacks=[evil], waits=[wait()])
    for line in stream().lines(made):
        msgspec.convert(line, TraceLine)
    (frame,) = next(iter(stream().lines(made)))["stack"]
    assert "\x1b" not in frame["function"]
    assert len(frame["module"]) == 500
