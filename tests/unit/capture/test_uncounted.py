"""A call known only from its record is counted from it, once."""

from __future__ import annotations

import numpy as np

from ingero.capture.operations import with_uncounted
from ingero.model.layout import CallFlag, Why
from tests.builders import call, operation, records

FROM_RUNTIME = int(CallFlag.CALL_FROM_RUNTIME)


def uncounted(op: str, took_ns: int, **more: int) -> np.ndarray:
    made = call(op, took_ns, **more)
    made["why"] = int(Why.WHY_UNCOUNTED)
    return made


def test_records_of_counted_calls_change_nothing() -> None:
    counted = operation("cudaMemcpy", [1000, 2000])
    assert with_uncounted(counted, call("cudaMemcpy", 1000)) is counted


def test_an_uncounted_call_adds_to_its_operation() -> None:
    counted = operation("cuLaunchKernel", [1000, 2000], caller=1)
    (row,) = with_uncounted(counted, uncounted("cuLaunchKernel", 9000, flags=FROM_RUNTIME))
    assert row["count"] == 3
    assert row["sum_ns"] == 12_000
    assert (row["min_ns"], row["max_ns"]) == (1000, 9000)
    assert row["slots"].sum() == 3


def test_operations_nobody_counted_get_rows_of_their_own() -> None:
    calls = records(uncounted("cudaMalloc", 5000), uncounted("cudaMalloc", 7000), uncounted("cudaFree", 10))
    rows = with_uncounted(operation("cudaMemcpy", [1]), calls)
    assert sorted(row["count"] for row in rows) == [1, 1, 2]
    assert sum(row["sum_ns"] for row in rows) == 12_011


def test_an_uncounted_call_that_failed_is_an_error_without_bytes() -> None:
    failed = uncounted("cudaMalloc", 5000, bytes=1 << 40)
    failed["why"] |= int(Why.WHY_ERROR)
    (row,) = with_uncounted(operation("cudaMemcpy", [1])[:0], failed)
    assert (row["count"], row["errors"], row["bytes"]) == (1, 1, 0)
