"""Copy-bound: slow large copies, or far too many small ones."""

from __future__ import annotations

import pytest

from ingero.model.facts import OpFact
from ingero.model.finding import Severity
from tests.facts import JOB, SEVERITIES, Story, job

KIND = "copy-bound"
COPY = "cuMemcpyHtoDAsync_v2"


def copying(ms: float, size: int = 4 << 20, count: int = 100, slices: int = 12) -> Story:
    """Only these copies, while the GPU has nothing to do."""
    story = job({"cuda_cpu": 60 + ms}, {"cuda_cpu": ms}, slices=slices)
    story.rows["operations"] = [row for row in story.rows["operations"] if row["op"] != 3]
    return story.calls(COPY, count, ms, size=size, caller=1)


def pageable(lost_ms: float) -> Story:
    """100 copies of 4 MiB that take `lost_ms` longer than the bus needs for them."""
    return copying(lost_ms + 100 * (4 << 20) / 25.0 / 1e6)


def test_large_copies_far_below_the_bus_are_found_with_their_rate() -> None:
    (finding,) = copying(400).findings()
    assert finding.kind == KIND
    assert "1.0 GB/s" in finding.title
    assert "1,200 copies of 4.7" in finding.causes[0].evidence[0].text
    assert "pin_memory" in finding.fix[0].text


@pytest.mark.parametrize(("ms", "severity"), SEVERITIES)
def test_severity_follows_the_share_of_time_lost(ms: float, severity: Severity | None) -> None:
    assert pageable(ms).severity(KIND) is severity


def test_what_can_be_won_is_what_pinned_memory_would_save() -> None:
    (finding,) = pageable(600).findings()
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(0.3, abs=0.001)


def test_thousands_of_small_copies_are_found_with_their_size() -> None:
    (finding,) = copying(400, size=4096, count=20_000).findings()
    assert finding.kind == KIND
    assert "240,000 copies of 4" in finding.title
    assert "Gather" in finding.fix[0].text


def test_copies_as_quick_as_the_bus_are_no_problem() -> None:
    assert copying(400, size=64 << 20).kinds() == []


def test_a_few_small_copies_per_iteration_are_usual() -> None:
    assert copying(400, size=4096, count=2_000).kinds() == []


def test_waiting_for_the_gpu_at_a_copy_is_not_copying() -> None:
    story = job({"cuda_cpu": 60.0}, slices=12)
    story.rows["operations"] = [row for row in story.rows["operations"] if row["op"] != 3]
    story.calls(COPY, 100, 1400, size=4 << 20, caller=1, split={"gpu_wait": 1395, "cuda_cpu": 5})
    assert story.kinds() == []


def test_waiting_at_many_small_copies_is_not_copying() -> None:
    story = job({"cuda_cpu": 60.0}, slices=12)
    story.rows["operations"] = [row for row in story.rows["operations"] if row["op"] != 3]
    story.calls(COPY, 4_000, 1400, size=4, caller=1, split={"gpu_wait": 1395, "cuda_cpu": 5})
    assert KIND not in story.kinds()


def test_a_healthy_run_is_quiet() -> None:
    assert job().kinds() == []


@pytest.mark.parametrize("source", ["calls", "sched"])
def test_without_its_sources_it_says_so(source: str) -> None:
    assert pageable(600).abstains(KIND, source)


@pytest.mark.parametrize(("gb_per_s", "said"), [(15.5, True), (16.5, False)])
def test_a_copy_is_slow_below_what_pageable_memory_reaches(gb_per_s: float, said: bool) -> None:
    """400 copies of 16 MiB."""
    ms = 400 * (16 << 20) / gb_per_s / 1e6
    assert copying(ms, size=16 << 20, count=400).kinds() == ([KIND] if said else [])


def test_large_copies_are_found_among_small_ones_the_other_way() -> None:
    """The mean size of all copies together would be small."""
    story = copying(400)
    story.facts.ops[13] = OpFact("driver", "cuMemcpyDtoHAsync_v2", "copy")
    small = [
        row | {"op": 13, "count": 3000, "bytes": 12_000, "sum_ns": 0}
        for row in story.rows["operations"]
        if row["op"] == 3
    ]
    story.rows["operations"] += small
    (finding,) = story.findings()
    assert finding.kind == KIND
    assert "1.0 GB/s" in finding.title


def test_a_small_copy_per_wait_is_reading_a_result() -> None:
    """20 results read per iteration, each by a small copy and a wait: synchronising, not copying."""
    story = copying(400, size=4, count=4000).calls("cudaGraphLaunch", 200, 1)  # one per iteration
    assert KIND in story.kinds()
    assert KIND not in story.calls("cudaStreamSynchronize", 3800, 10).kinds()


def test_no_more_is_lost_than_the_driving_thread_spent_in_calls() -> None:
    """1400 ms of copies, 200 of them its own."""
    story = job({"cuda_cpu": 200.0}, slices=12)
    story.rows["operations"] = [row for row in story.rows["operations"] if row["op"] != 3]
    (finding,) = story.calls(COPY, 100, 1400, size=4 << 20, caller=1).findings()
    assert finding.effect.wall_share == pytest.approx(0.1, abs=0.001)


def test_of_a_copy_that_waits_first_only_the_copying_counts() -> None:
    """A pageable copy of 4 MiB that sleeps until the GPU is there: 400 ms of 1400 are copying."""
    story = job({"cuda_cpu": 460.0}, {"cuda_cpu": 400.0}, slices=12)
    story.rows["operations"] = [row for row in story.rows["operations"] if row["op"] != 3]
    split = {"cuda_cpu": 400, "sleep": 600, "gpu_wait": 300, "runqueue": 100}
    (finding,) = story.calls(COPY, 100, 1400, size=4 << 20, caller=1, split=split).findings()
    assert finding.kind == KIND
    assert "1.0 GB/s" in finding.title
    assert finding.gain is not None
    assert finding.gain.share == pytest.approx(400 / 2000, abs=0.001)  # the bus worked in the wait


def pinned(size: int = 40 << 20, **link: float) -> Story:
    """100 copies of 40 MiB a slice that cost the host nothing: the card's engine makes them."""
    story = job(slices=12).on_card(JOB).looked(**link)
    story.rows["operations"] = [row for row in story.rows["operations"] if row["op"] != 3]
    return story.calls(COPY, 100, 2, size=size, caller=1)


def test_a_link_below_what_card_and_slot_can_do_is_told_where_the_bytes_take_longer() -> None:
    (finding,) = pinned(pcie_gen=1).findings()
    assert finding.kind == KIND
    assert "the link of GPU 0 is PCIe 1 x16, it could be 5 x16" in finding.title
    bytes_moved = 100 * (40 << 20)
    assert finding.effect.wall_share == pytest.approx(bytes_moved * (1 / 4.0 - 1 / 63.0) / 2e9, rel=0.02)


def test_a_full_link_is_quiet_however_much_is_copied() -> None:
    assert pinned().kinds() == []


def test_a_narrow_link_over_which_little_goes_is_quiet() -> None:
    assert pinned(size=1 << 18, pcie_width=4).kinds() == []


def test_a_link_that_the_driver_does_not_tell_is_not_judged() -> None:
    assert pinned(pcie_gen=float("nan")).kinds() == []


def test_the_link_of_another_card_is_not_blamed() -> None:
    assert pinned().looked(1, pcie_gen=1).kinds() == []


def test_pinned_copies_over_an_old_bus_are_not_taken_for_pageable_ones() -> None:
    """12 GB/s is all that PCI Express 3 carries."""
    old = copying(20 * 100 * (4 << 20) / 12.0 / 1e6, count=2000)
    assert KIND in old.kinds()
    assert KIND not in old.on_card(JOB).card(pcie_gen_max=3).looked(pcie_gen=3).kinds()


def test_a_link_over_which_more_passes_than_it_says_is_not_believed() -> None:
    assert pinned(pcie_gen=1, pcie_rx_bytes_per_s=40e9).kinds() == []
    assert pinned(size=100 << 20, pcie_gen=1).kinds() == []


def test_what_the_gpu_copies_within_its_own_memory_is_no_part_of_the_rate() -> None:
    """Thousands of gigabytes a second cross no bus."""
    story = copying(900.0, size=100 << 20, count=10)
    story.calls("cuMemcpyDtoDAsync_v2", 700, 7, size=50 << 20, caller=1)
    (found,) = [each for each in story.findings() if each.kind == "copy-bound"]
    assert float(found.title.partition(" at ")[2].split()[0]) < 4
