"""`trace --json`: records with their stacks, each stack told once."""

from __future__ import annotations

import msgspec
import numpy as np

from ingero.model.stack import Frame, ResolvedStack
from ingero.serve.answers.json_schemas import TraceLine
from ingero.serve.answers.records import RecordStream
from tests.builders import OPERATIONS, SECOND, call, fixed_clock, process, wait, window
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


def test_processes_that_ended_are_forgotten_when_their_last_records_are_told() -> None:
    records = stream()
    list(records.lines(window(processes=[process(pid=100, rank=3)])))
    for pid in range(200, 300):
        list(records.lines(window(processes=[process(pid=pid)])))
        records.skip(window(processes=[process(pid=pid, end_ns=SECOND)]))
    (line,) = records.lines(window(calls=[call(pid=100)]))
    assert line["rank"] == 3
    assert set(records._processes) == {100}


def test_a_process_that_ends_has_its_rank_until_then() -> None:
    records = stream()
    list(records.lines(window(processes=[process(pid=100, rank=3)])))
    ends = window(processes=[process(pid=100, rank=3, end_ns=SECOND)], calls=[call(pid=100)])
    assert [line["rank"] for line in records.lines(ends)] == [3]
