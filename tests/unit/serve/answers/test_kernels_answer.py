"""Kernels by process: launches by weight, the host's time, and how many have a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingero.model.operations import KernelName
from ingero.model.window import Records, Window
from ingero.serve.answers.kernels import KernelsAnswer, kernel_stats
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, FakeTime, call, process, window

ALL_TIME = TimeRange(0, 2**62, "given")
KERNELS = {1: KernelName("void scale<4>(float*)"), 2: KernelName("job+0x10", known=False)}
Ask = Callable[..., KernelsAnswer]


def launch(kernel: int, took_ns: int = 5_000, **more: Any) -> Records:
    record = call("cuLaunchKernel", took_ns, **more)
    record["kernel"] = np.uint64(kernel)
    return record


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    opened: list[Reader] = []

    def answer(*windows: Window, filters: Filters | None = None, limit: int = 100) -> KernelsAnswer:
        times = FakeTime()
        with Writer(tmp_path / "k.db", "n", times.clock(), OPERATIONS) as writer:
            for each in windows:
                assert writer.write(each) == ""
            times.advance(max(each.end_ns for each in windows))
        opened.append(Reader(tmp_path / "k.db"))
        return kernel_stats(opened[-1], ALL_TIME, filters or Filters(), limit)

    yield answer
    for reader in opened:
        reader.close()


def test_launches_are_counted_by_weight_and_the_median_is_of_launches(ask: Ask) -> None:
    calls = [launch(1, 5_000, weight=97), launch(1, 123_456, weight=2), launch(1, 9_000_000)]
    answer = ask(window(0, calls=calls, kernels=KERNELS, processes=[process(100, comm="train")]))
    (row,) = answer.kernels
    assert (row.kernel, row.short, row.named) == ("void scale<4>(float*)", "scale", True)
    assert (row.pid, row.comm, row.launches, row.share) == (100, "train", 100, 1.0)
    assert (row.p50_ns, row.max_ns) == (5_000, 9_000_000)
    assert (answer.launches, answer.named_share) == (100, 1.0)


def test_the_share_named_counts_launches_and_no_places(ask: Ask) -> None:
    calls = [launch(1, weight=6), launch(2, weight=3), launch(0, weight=1)]
    answer = ask(window(0, calls=calls, kernels=KERNELS))
    assert answer.named_share == 0.6
    assert [(row.kernel, row.named, row.share) for row in answer.kernels] == [
        ("void scale<4>(float*)", True, 0.6),
        ("job+0x10", False, 0.3),
        (None, False, 0.1),
    ]


def test_processes_are_kept_apart_and_filtered(ask: Ask) -> None:
    calls = [launch(1), launch(1, pid=200, weight=3), launch(2, pid=200)]
    windows = [window(n * SECOND, calls=calls, kernels=KERNELS) for n in range(2)]
    answer = ask(*windows)
    assert [(row.pid, row.launches, row.share) for row in answer.kernels] == [
        (200, 6, 0.75), (100, 2, 1.0), (200, 2, 0.25),
    ]  # fmt: skip
    assert [row.pid for row in ask(*windows, filters=Filters(pid=100)).kernels] == [100]
    assert len(ask(*windows, limit=1).kernels) == 1


def test_other_calls_and_those_inside_a_launch_are_none(ask: Ask) -> None:
    calls = [call("cudaMemcpy"), launch(1, nested=True), call("ncclAllReduce")]
    answer = ask(window(0, calls=calls, kernels=KERNELS))
    assert (answer.kernels, answer.launches, answer.named_share) == ([], 0, None)


@pytest.mark.parametrize("took_ns", [0, 7, 999, 1_000, 123_456, 10**12 + 7, 2**62])
def test_durations_keep_three_digits(ask: Ask, took_ns: int) -> None:
    (row,) = ask(window(0, calls=[launch(1, took_ns)], kernels=KERNELS)).kernels
    assert row.p50_ns is not None
    assert took_ns * 0.99 <= row.p50_ns <= took_ns
    assert row.max_ns == took_ns
