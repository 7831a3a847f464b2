"""Rows and sums tell the same number of calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ingero.model.layout import CallFlag
from ingero.model.window import UNSAMPLED
from ingero.store.reader import Reader
from ingero.store.weights import _spread
from ingero.store.writer import Writer
from tests.builders import NUMBERS, OPERATIONS, SECOND, call, fixed_clock, operation, process, records, window

RUNTIME = int(CallFlag.CALL_FROM_RUNTIME)
WEIGHTS = "SELECT pid, op, SUM(weight) FROM cuda_events GROUP BY 1, 2 ORDER BY 1, 2"
COUNTS = "SELECT pid, op, SUM(count) FROM operations GROUP BY 1, 2 ORDER BY 1, 2"


def both(path: Path, *windows: object) -> tuple[list[tuple], list[tuple]]:
    with Writer(path, "a", fixed_clock(), OPERATIONS) as writer:
        for each in windows:
            assert writer.write(each) == ""  # type: ignore[arg-type]
    with Reader(path) as reader:
        return reader.rows(WEIGHTS), reader.rows(COUNTS)


def launches(count: int, pid: int = 100):
    return operation("cuLaunchKernel", [5000] * count, pid=pid, caller=1)


def sample(at_s: int, weight: int, pid: int = 100):
    return call("cuLaunchKernel", at_ns=at_s * SECOND + 1, weight=weight, flags=RUNTIME, pid=pid)


def test_estimated_calls_that_no_sample_followed_are_on_the_records_there_are(path: Path) -> None:
    weights, counts = both(
        path,
        window(0, calls=records(sample(0, 10), sample(0, 30)), operations=launches(100)),
        window(SECOND, operations=launches(60)),
    )
    assert weights == counts == [(100, "cuLaunchKernel", 160)]
    with Reader(path) as reader:  # in proportion: no record stands for what another is like
        assert reader.rows("SELECT weight FROM cuda_events") == [(40,), (120,)]


def test_calls_after_the_last_sample_count_once(path: Path) -> None:
    left = np.array([(100, NUMBERS["cuLaunchKernel"], 1, 7)], UNSAMPLED)
    weights, counts = both(
        path,
        window(0, calls=records(sample(0, 10)), operations=launches(12)),
        window(SECOND, operations=launches(5), unsampled=left),
    )
    assert weights == counts == [(100, "cuLaunchKernel", 17)]


def test_records_that_stand_for_too_many_calls_are_made_to_fit(path: Path) -> None:
    weights, counts = both(
        path, window(0, calls=records(sample(0, 50), sample(0, 50)), operations=launches(80))
    )
    assert weights == counts


def test_a_process_that_ended_is_settled_with_its_last_counts_and_its_number_can_be_used_again(
    path: Path,
) -> None:
    weights, counts = both(
        path,
        window(0, calls=records(sample(0, 10)), operations=launches(10)),
        window(SECOND, operations=launches(30), processes=[process(100, end_ns=SECOND)]),
        window(2 * SECOND, operations=launches(5)),
        window(3 * SECOND),
        window(4 * SECOND, calls=records(sample(4, 3)), operations=launches(4)),
    )
    assert weights == counts == [(100, "cuLaunchKernel", 49)]
    with Reader(path) as reader:
        assert reader.rows("SELECT weight FROM cuda_events") == [(45,), (4,)]


def test_every_record_stands_for_a_call_at_least() -> None:
    assert _spread([1, 1], -5) == [1, 1]
    assert sum(_spread([3, 5, 7], 100)) == 115
    assert _spread([], 5) == []


def test_records_that_stood_for_nothing_stand_for_a_call_each() -> None:
    assert _spread([0, 0], 2) == [2, 2]
    assert _spread([0], 0) == [1]
