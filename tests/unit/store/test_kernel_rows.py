"""Launches are stored with the names of their kernels, also when those became known later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ingero.model.operations import KernelName, LearntKernel
from ingero.model.window import Records
from ingero.store.reader import Reader
from tests.builders import SECOND, call, window

Ask = Callable[..., list[dict[str, Any]]]
ADD, SCALE = KernelName("add(float*)"), KernelName("void ns::scale<4>(float*)")
PLACE = KernelName("job+0x10", known=False)
HIGH = 0xFFFF_8000_0000_0010  # a handle that is negative as SQLite has it
NAMES = "SELECT pid, kernel_name FROM cuda_events ORDER BY timestamp_ns"


def launch(
    at_ns: int, kernel: int = 0, *, handle: int = 1, op: str = "cuLaunchKernel", **more: int
) -> Records:
    record = call(op, at_ns=at_ns, args=(handle,), **more)  # type: ignore[arg-type]
    record["kernel"] = np.uint64(kernel)
    return record


def test_names_are_kept_once_and_calls_without_have_none(ask: Ask) -> None:
    calls = [launch(1, 3), launch(2, 4), launch(3, 3), launch(4), call("cudaMemcpy", at_ns=5)]
    first = window(0, calls=calls, kernels={3: ADD, 4: SCALE})
    second = window(SECOND, calls=[launch(SECOND, 9)], kernels={9: ADD})  # numbers are the window's
    rows = ask(NAMES, first, second)
    assert [row["kernel_name"] for row in rows] == [ADD.text, SCALE.text, ADD.text, None, None, ADD.text]


def test_the_short_name_is_kept_too(ask: Ask) -> None:
    rows = ask("SELECT name, short, known FROM kernel ORDER BY id", window(
        0, calls=[launch(1, 1), launch(2, 2)], kernels={1: SCALE, 2: PLACE}
    ))  # fmt: skip
    assert rows == [
        {"name": SCALE.text, "short": "ns::scale", "known": 1},
        {"name": PLACE.text, "short": PLACE.text, "known": 0},
    ]


def test_a_name_learnt_later_reaches_the_launches_before_and_no_others(ask: Ask) -> None:
    before = window(
        0,
        calls=[
            launch(1, handle=HIGH),
            launch(2, handle=HIGH, pid=200),
            launch(3, handle=2),
            launch(4, 1, handle=HIGH),  # known then: the handle meant something else
            launch(5, 2, handle=3),  # only its place
            call("cudaMalloc", at_ns=6, args=(HIGH,)),
        ],
        kernels={1: SCALE, 2: PLACE},
    )
    learnt = [LearntKernel(100, HIGH, ADD), LearntKernel(100, 3, SCALE)]
    after = window(SECOND, calls=[launch(SECOND, 7, handle=HIGH)], kernels={7: ADD}, kernels_learnt=learnt)
    rows = ask(NAMES, before, after)
    assert [row["kernel_name"] for row in rows] == [
        ADD.text, None, None, SCALE.text, SCALE.text, None, ADD.text,
    ]  # fmt: skip


def test_an_earlier_recording_is_not_touched(stored: Callable[..., Reader]) -> None:
    stored(window(0, calls=[launch(1, handle=5)]))
    reader = stored(
        window(SECOND, calls=[launch(SECOND, handle=5)]),
        window(2 * SECOND, kernels_learnt=[LearntKernel(100, 5, ADD)]),
    )
    found = [row[0] for row in reader.rows("SELECT kernel_name FROM cuda_events ORDER BY timestamp_ns")]
    assert found == [None, ADD.text]
