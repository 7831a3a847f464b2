"""A card kept below its clock: what proves it, and the many cards that only look so."""

from __future__ import annotations

import pytest

from ingero.model.finding import Severity
from tests.facts import JOB, Story, job

KIND = "gpu-throttled"
HOT = {"busy_clock_mhz": 1000, "forced_share": 1, "reasons": 0x48, "temperature_c": 91}
SLICES = 12


def gpu_bound(slices: int = SLICES) -> Story:
    """A job that waits for its card nearly all the time, and is on card 0."""
    return job({"host_cpu": 60, "cuda_cpu": 60}, slices=slices).on_card(JOB)


def hot(clock: float = 1000, first: int = 4, **more: float) -> Story:
    """From the fourth slice on, iterations take as much longer as the clock is lower."""
    story = Story(SLICES)
    steps = {False: 200, True: max(1, int(200 * clock / 1755))}
    for held in (False, True):
        when = range(first, SLICES) if held else range(first)
        job({"host_cpu": 60, "cuda_cpu": 60}, story=story, when=when, steps=steps[held])
    story.on_card(JOB)
    story.looked(when=range(first))
    return story.looked(when=range(first, SLICES), **(HOT | {"busy_clock_mhz": clock} | more))


def test_a_card_that_heat_holds_down_is_told_with_its_clock_and_reason() -> None:
    (finding,) = hot().findings()
    assert finding.kind == KIND
    assert finding.title == "GPU 0 runs at 1000 of 1755 MHz: hardware slowdown, heat (hardware)"
    assert finding.effect.wall_share == pytest.approx(0.94 * (1 - 1000 / 1755), abs=0.02)
    assert "91 °C" in finding.causes[0].evidence[0].text
    assert any("-i 0" in (fix.command or "") for fix in finding.fix)


@pytest.mark.parametrize(
    ("clock", "severity"),
    [(1700, None), (1600, Severity.LOW), (1500, Severity.MEDIUM), (700, Severity.CRITICAL)],
)
def test_severity_follows_the_clock(clock: float, severity: Severity | None) -> None:
    assert hot(clock).severity(KIND) == severity


def test_a_healthy_card_at_its_power_limit_is_none_of_it() -> None:
    assert gpu_bound().looked().kinds() == []


def test_a_healthy_card_at_its_power_limit_far_below_its_highest_clock_is_none_of_it() -> None:
    assert gpu_bound().looked(busy_clock_mhz=1200).kinds() == []


def test_a_lowered_power_limit_is_told_with_the_command_that_sets_it_back() -> None:
    story = gpu_bound().looked(busy_clock_mhz=900, power_limit_mw=300_000)
    (finding,) = story.findings()
    assert finding.title == "GPU 0 runs at 900 of 1980 MHz: power limit"
    assert finding.fix[0].command == "sudo nvidia-smi -i 0 -pl 700"


def test_an_idle_card_at_low_clocks_is_none_of_it() -> None:
    nan = float("nan")
    idle = {
        "gpu_share": 0.05,
        "busy_clock_mhz": nan,
        "forced_share": nan,
        "capped_share": nan,
        "reasons": nan,
    }
    assert gpu_bound().looked(**idle).kinds() == []


def test_clocks_the_owner_set_are_none_of_it() -> None:
    story = gpu_bound().card(sm_clock_set_mhz=1200, sm_clock_default_mhz=1980)
    assert story.looked(busy_clock_mhz=1190, reasons=0x2, capped_share=0).kinds() == []


def test_heat_that_costs_no_clock_is_not_worth_saying() -> None:
    assert gpu_bound().looked(forced_share=1, reasons=0x20, busy_clock_mhz=1950).kinds() == []


def test_iterations_that_got_no_longer_lost_nothing() -> None:
    """A job bound by the card's memory does not care for the clock of its processors."""
    story = gpu_bound().looked(when=range(4)).looked(when=range(4, SLICES), **HOT)
    assert story.kinds() == []


def test_the_neighbour_on_another_card_is_not_blamed() -> None:
    story = gpu_bound().looked().looked(1, **HOT)
    assert story.kinds() == []


def test_a_job_whose_card_is_not_known_is_not_judged() -> None:
    story = job({"host_cpu": 60, "cuda_cpu": 60}, slices=SLICES).looked(**HOT).looked(1, **HOT)
    assert story.kinds() == []


def test_a_job_that_does_not_wait_for_the_card_loses_nothing() -> None:
    story = job({"host_cpu": 1900, "cuda_cpu": 60}, slices=SLICES).on_card(JOB).looked(**HOT)
    assert KIND not in story.kinds()


def test_without_counters_it_is_not_watched() -> None:
    assert hot().abstains(KIND, "gpu")


def test_slices_in_which_nobody_asked_the_card_tell_nothing() -> None:
    assert gpu_bound().looked(when=range(3)).kinds() == []
