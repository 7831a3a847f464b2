"""Cold start: told apart from slowness, once, and only when it takes a while."""

from __future__ import annotations

from ingero.model.finding import Severity
from tests.facts import SECOND, Story, job

KIND = "cold-start"


def starting(ms: float, when: range = range(3), slices: int = 12) -> Story:
    return job(slices=slices).calls("cuModuleLoadData", 20, ms, when=when)


def test_a_long_start_is_told_and_is_no_more_than_low() -> None:
    (finding,) = starting(1800).findings()
    assert (finding.kind, finding.severity) == (KIND, Severity.LOW)
    assert (finding.first_ns, finding.last_ns) == (0, 6 * SECOND)
    assert "5.4 s" in finding.title
    assert any("LAZY" in (fix.command or "") for fix in finding.fix)


def test_creating_the_context_counts_too() -> None:
    story = job(slices=12).calls("cuCtxCreate_v2", 1, 1900, when=range(3))
    assert story.kinds() == [KIND]


def test_a_short_start_is_not_worth_saying() -> None:
    assert starting(500).kinds() == []


def test_a_start_that_is_little_of_what_was_seen_is_not_worth_saying() -> None:
    assert starting(1800, slices=60).kinds() == []


def test_code_loaded_much_later_is_no_start() -> None:
    assert KIND not in starting(1900, when=range(40, 60), slices=60).kinds()


def test_what_is_lost_after_the_start_is_still_found() -> None:
    lost = {"disk_wait": 600.0}
    story = job(when=range(3), slices=12).calls("cuModuleLoadData", 20, 1800, when=range(3))
    job(lost, lost, story=story, when=range(3, 12))
    assert story.kinds() == ["disk-wait", KIND]


def test_a_healthy_run_is_quiet() -> None:
    assert job().kinds() == []


def test_without_calls_it_says_so() -> None:
    assert starting(1800).abstains(KIND, "calls")
