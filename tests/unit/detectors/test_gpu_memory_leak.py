"""GPU memory leak: grows to the end, unlike a start, a cache or churn."""

from __future__ import annotations

import numpy as np
import pytest

from ingero.model.finding import Severity
from ingero.units import SECOND
from tests.facts import BY_NAME, JOB, Story, job

KIND = "gpu-memory-leak"
MIB = 1 << 20


def leaking(count: int = 200, size: int = MIB, frees: int = 0, slices: int = 12) -> Story:
    story = job(slices=slices).calls("cudaMalloc", count, 2, size=size)
    return story.calls("cudaFree", frees, 1) if frees else story


def test_allocations_that_stay_are_a_leak_with_its_rate() -> None:
    (finding,) = leaking().findings()
    assert (finding.kind, finding.severity, finding.victim.pid) == (KIND, Severity.MEDIUM, JOB)
    assert "every minute" in finding.title
    assert "1600 allocations, 0 frees in 16 s" in finding.evidence[0].text  # a third is the start


def test_a_leak_beside_much_churn_is_still_a_leak() -> None:
    assert KIND in leaking(count=300, frees=200).kinds()


def test_what_is_allocated_and_freed_alike_is_no_leak() -> None:
    assert KIND not in leaking(frees=200).kinds()


def beside_churn(*kept: int) -> Story:
    """200 blocks of 1 MiB come and go in each slice, and so many more stay."""
    story = job(slices=len(kept)).calls("cudaFree", 200, 1)
    for number, more in enumerate(kept):
        story.calls("cudaMalloc", 200 + more, 2, size=MIB, when=range(number, number + 1))
    return story


def test_a_little_kept_in_every_tenth_iteration_is_a_leak_whatever_comes_and_goes_beside_it() -> None:
    assert KIND in beside_churn(20, 20, 20).kinds()


def test_a_leak_that_begins_amid_the_recording_is_one() -> None:
    assert KIND in beside_churn(0, 10, 20, 20, 21).kinds()


@pytest.mark.parametrize("kept", [(40, 5, 60, 5, 30, 0), (19, 19, 19, 19, 19, 19), (20,), (90, 60, 40, 20)])
def test_a_few_more_allocations_than_frees_are_no_leak(kept: tuple[int, ...]) -> None:
    """Irregular, few, seen for too short a time, or ever less."""
    assert KIND not in beside_churn(*kept).kinds()


def test_host_memory_and_addresses_are_not_the_memory_of_the_gpu() -> None:
    story = job(slices=12).calls("cuMemHostAlloc", 100, 1, size=MIB).calls("cuMemMap", 100, 1, size=MIB)
    assert KIND not in story.kinds()


def test_the_growth_of_a_start_is_no_leak() -> None:
    story = job(slices=12).calls("cudaMalloc", 500, 2, size=MIB, when=range(4))
    assert story.kinds() == []


def test_a_cache_that_grew_and_rests_is_no_leak() -> None:
    story = job(slices=20).calls("cudaMalloc", 500, 2, size=MIB, when=range(15))
    assert story.kinds() == []


def test_tiny_allocations_are_not_worth_saying() -> None:
    assert leaking(size=64).kinds() == []


def test_allocations_of_unknown_size_are_not_guessed() -> None:
    assert leaking(size=0).kinds() == []


def test_growth_with_every_iteration_needs_no_long_look() -> None:
    assert leaking(slices=3).kinds() == ["gpu-memory-leak"]


def test_too_short_a_look_says_nothing() -> None:
    assert leaking(slices=1).kinds() == []


def test_a_healthy_run_is_quiet() -> None:
    assert job().kinds() == []


@pytest.mark.parametrize("source", ["calls"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert leaking().abstains(KIND, source)


def growing(*counts: int) -> Story:
    """So many blocks of 20 MiB in one slice after the other."""
    story = job(slices=len(counts))
    for number, count in enumerate(counts):
        story.calls("cudaMalloc", count, 1, size=20 * MIB, when=range(number, number + 1))
    return story


def test_a_cache_that_still_grows_a_little_is_no_leak() -> None:
    assert growing(20, 10, 7, 5, 4, 3, 3, 2, 2, 2, 1, 1, 1, 1, 1).kinds() == []


def test_growth_that_does_not_get_less_is_a_leak_also_after_a_large_start() -> None:
    assert growing(20, 10, 7, 5, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3).kinds() == [KIND]


def held(*sizes: int) -> Story:
    """A leak by its calls, of which the driver sees the process hold so much, slice by slice."""
    story = leaking(slices=len(sizes)).looked()
    for number, size in enumerate(sizes):
        story.on_card(JOB, memory=size, when=range(number, number + 1))
    return story


def test_the_driver_s_own_figure_is_further_proof() -> None:
    (finding,) = held(*(number * 200 * MIB for number in range(12))).findings()
    assert finding.kind == KIND
    assert "hold 1.4 GiB more at the end" in finding.evidence[1].text


def test_memory_that_does_not_grow_on_the_card_is_no_leak() -> None:
    assert KIND not in held(*[4 << 30] * 12).kinds()


def test_allocations_that_fail_keep_nothing() -> None:
    """An allocator that asks again and again, of a GPU that is full."""
    story = job(slices=12).calls("cudaMalloc", 200, 2, size=0, errors=200)
    assert KIND not in story.kinds()


def test_an_allocator_that_frees_and_tries_again_keeps_nothing() -> None:
    """Each time one fails, its cached block is freed, and the second succeeds."""
    story = job(slices=12).calls("cudaMalloc", 200, 2, size=MIB // 2, errors=100).calls("cudaFree", 100, 1)
    assert KIND not in story.kinds()


def test_of_a_leak_beside_failures_only_what_succeeded_is_told() -> None:
    story = job(slices=12).calls("cudaMalloc", 200, 2, size=MIB // 2, errors=100)
    (finding,) = [each for each in story.findings() if each.kind == KIND]
    assert "800 allocations, 0 frees in 16 s: 800 MiB stayed" in finding.evidence[0].text


def test_frees_that_fail_or_free_nothing_give_nothing_back() -> None:
    story = leaking(frees=200)
    story.facts.freed_nothing = lambda pid: dict.fromkeys(range(12), 200) if pid == JOB else {}
    assert KIND in story.kinds()
    story = job(slices=12).calls("cudaMalloc", 200, 2, size=MIB).calls("cudaFree", 200, 1, errors=200)
    assert KIND in story.kinds()


def pooled(times_s: list[float], sizes: list[int], slices: int = 3) -> Story:
    """Blocks that a caching allocator asks the driver for, each at its time."""
    story = job(slices=slices)
    for at_s, size in zip(times_s, sizes, strict=True):
        number = int(at_s // 2)
        story.calls("cudaMalloc", 1, 0.3, size=size, when=range(number, number + 1))
    marks = np.array([[story.facts.origin_ns + int(at_s * SECOND), 300_000] for at_s in times_s], np.int64)
    story.facts.marks = lambda pid, op: marks if op == BY_NAME["cudaMalloc"] else marks[:0]
    return story


EVEN = [0.3 + 0.55 * number for number in range(11)]


def test_an_allocator_that_asks_for_the_same_again_and_again_is_short_of_it() -> None:
    """Too few calls for sums of slices to tell, at even times up to the end."""
    (finding,) = pooled(EVEN, [96 * MIB] * 11).findings()
    assert finding.kind == KIND


def test_blocks_come_at_the_pace_of_the_loss_not_of_a_clock() -> None:
    """Large blocks of a steady leak: now one after two steps, now after five."""
    times_s = [2.1, 2.6, 2.9, 3.3, 3.7, 4.6, 5.0, 5.7]
    (finding,) = pooled(times_s, [320 * MIB] * 8).findings()
    assert finding.kind == KIND


@pytest.mark.parametrize(
    ("times_s", "sizes"),
    [
        (EVEN, [(60 + 8 * number) * MIB for number in range(11)]),  # ever longer inputs
        (EVEN[:9], [96 * MIB] * 9),  # it has enough since
        ([2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 4.9, 5.8], [96 * MIB] * 8),  # a new phase
        (EVEN[:5], [96 * MIB] * 5),
    ],
)
def test_an_allocator_that_asks_for_more_than_before_or_no_more_is_no_leak(
    times_s: list[float], sizes: list[int]
) -> None:
    assert KIND not in pooled(times_s, sizes).kinds()
