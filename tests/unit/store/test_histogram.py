"""The histogram lives in the model; the store is what keeps it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero.model import histogram

DURATIONS = st.integers(0, 2**64 - 1)
COUNTS = st.dictionaries(st.integers(0, histogram.SLOTS - 1), st.integers(1, 2**40), max_size=40)


def _slot_in_c(ns: int) -> int:
    """What probes/call.bpf.h does."""
    if ns < 1 << histogram.MIN_BITS:
        return 0
    msb = ns.bit_length() - 1
    slot = 1 + ((msb - histogram.MIN_BITS) << histogram.SUB_BITS) + ((ns >> (msb - histogram.SUB_BITS)) & 7)
    return min(slot, histogram.SLOTS - 1)


def _array(counts: dict[int, int]) -> np.ndarray:
    slots = np.zeros(histogram.SLOTS, np.uint64)
    for slot, count in counts.items():
        slots[slot] = count
    return slots


@given(DURATIONS)
def test_slots_are_those_the_probes_use(ns: int) -> None:
    assert int(histogram.slot_of([ns])[0]) == _slot_in_c(ns)


@given(st.integers(0, 200_000_000_000))
def test_a_duration_lies_within_its_slot(ns: int) -> None:
    slot = int(histogram.slot_of([ns])[0])
    bounds = histogram.lower_bounds()
    assert bounds[slot] <= ns < bounds[slot + 1]


@given(st.lists(st.integers(64, 10**11), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_percentile_is_off_by_at_most_one_slot(values: list[int], share: float) -> None:
    slots = np.bincount(histogram.slot_of(values), minlength=histogram.SLOTS)
    (found,) = histogram.percentiles(slots, [share], min(values), max(values))
    rank = max(int(np.ceil(share * len(values) - 1e-9)), 1)
    true = sorted(values)[rank - 1]
    assert found is not None
    assert true * (1 - 1 / 8) - 1 <= found <= true * (1 + 1 / 8) + 1


def test_no_calls_have_no_percentile() -> None:
    assert histogram.percentiles(np.zeros(256), (0.5, 0.99)) == [None, None]


@given(COUNTS)
def test_what_is_stored_is_read_back(counts: dict[int, int]) -> None:
    assert histogram.decode(histogram.encode(_array(counts))).tolist() == _array(counts).tolist()


@given(st.lists(st.tuples(COUNTS, st.integers(0, 3)), max_size=10))
def test_merging_stored_histograms_adds_them_up(parts: list[tuple[dict[int, int], int]]) -> None:
    merged = histogram.merge([histogram.encode(_array(c)) for c, _ in parts], [g for _, g in parts], 4)
    expected = np.zeros((4, histogram.SLOTS), np.uint64)
    for counts, group in parts:
        expected[group] += _array(counts)
    assert (merged == expected).all()


def test_a_few_slots_take_a_few_bytes() -> None:
    assert len(histogram.encode(_array({40: 3, 41: 200}))) == 5


@pytest.mark.parametrize("blob", [b"\x03abc", b"\x01abc", b"\x08123"])
def test_a_broken_histogram_is_refused(blob: bytes) -> None:
    with pytest.raises(ValueError):
        histogram.decode(blob)
