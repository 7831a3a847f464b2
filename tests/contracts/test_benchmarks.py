"""Every benchmark is run by `make bench` and has its section in docs/overhead.md, or on the page it names.

No timing is looked at here: what a benchmark finds depends on the machine.
"""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import numpy as np
import pytest

from benchmarks import run
from benchmarks.figures import Figure, Section, at_most, missed
from benchmarks.fleet.run import growth, sampled, taken
from benchmarks.intervals import mirrored, ratio_of_medians
from benchmarks.machine import Moment
from benchmarks.page import page, with_section
from tests.contracts.tree import ROOT, under

QUIET = Moment("2026-01-01 00:00 UTC", 0.0, 0.0, 0)


def made(path: Path) -> bool:
    return "\ndef measure(quick: bool)" in path.read_text(encoding="utf-8")


def test_every_benchmark_is_run() -> None:
    assert {path.stem for path in under("benchmarks", ".py") if made(path)} == set(run.NAMES)


@pytest.mark.parametrize("name", run.NAMES)
def test_every_benchmark_has_its_section_on_the_page(name: str) -> None:
    title = importlib.import_module(f"benchmarks.{name}").TITLE
    page = run.page_of(name)
    assert page.parent == ROOT / "docs"
    assert f"\n## {title}\n" in page.read_text(encoding="utf-8")


def test_a_section_on_another_page_is_renewed_in_its_place() -> None:
    section = Section("Speed", (Figure("a", "1"),), "How.", "Why.")
    first = with_section("# Page\n\nProse.\n\n## More\n\nText.\n", section)
    assert first.startswith("# Page\n\nProse.\n\n## More\n\nText.\n\n## Speed\n")
    again = with_section(
        first + "\n## Last\n\nWords.\n", Section("Speed", (Figure("a", "2"),), "How.", "Why.")
    )
    assert again == first.replace("| a | 1 |", "| a | 2 |") + "\n## Last\n\nWords.\n"


def test_a_missed_target_is_said_plainly() -> None:
    sections = [
        Section("Speed", (at_most("a call", 2.0, 1.3, "2.0 x", " x"), Figure("b", "1")), "How.", "Why.")
    ]
    assert missed(sections) == ["target missed: Speed, a call: 2.0 x, target ≤ 1.3 x"]
    text = page(sections, {"cores": "2"}, QUIET, QUIET)
    assert "- Target missed: Speed, a call: 2.0 x, target ≤ 1.3 x." in text
    assert "Every target was met" not in text


def test_a_benchmark_that_failed_is_not_a_target_met() -> None:
    text = page([Section("Speed", (), "", "", problem="no root")], {}, QUIET, QUIET)
    assert "- Not measured: Speed: no root." in text
    assert "Every target was met" not in text


def test_a_busy_machine_is_said() -> None:
    busy = Moment(QUIET.at, 3.0, 40.0, 1)
    assert "was not idle" in page([], {}, busy, QUIET)
    assert "was not idle" not in page([], {}, QUIET, QUIET)


def test_drift_favours_neither_side() -> None:
    assert mirrored(["a", "b"]) == ["a", "b", "b", "a"]
    drift = np.arange(400, dtype=float).reshape(100, 4)
    equal = ratio_of_medians(100 + drift[:, [1, 2]], 100 + drift[:, [0, 3]])
    assert equal.low <= 1 <= equal.high


def test_an_interval_holds_the_ratio_it_was_drawn_from() -> None:
    random = np.random.default_rng(1)
    found = ratio_of_medians(random.normal(130, 10, (60, 2)), random.normal(100, 10, (60, 2)))
    assert found.low < 1.3 < found.high
    assert found.high - found.low < 0.2


def test_a_collector_that_fell_behind_missed_its_target_and_says_so() -> None:
    behind = taken("5,000 agents", 310.0, 42.0)
    assert "FELL BEHIND" in behind.value
    assert missed([Section("Speed", (behind,), "", "")])
    assert not missed([Section("Speed", (taken("5,000 agents", 500.0, 0.4),), "", "")])


def test_memory_is_looked_at_all_along_and_its_slope_is_that_of_the_later_half() -> None:
    values, enough = iter(range(100)), threading.Event()

    def read() -> float:
        value = next(values)
        if value == 5:
            enough.set()
        return float(value)

    with sampled(read, every_s=0.001) as memory:
        assert enough.wait(20)
    assert memory[:6] == [0, 1, 2, 3, 4, 5]
    assert memory == sorted(memory)
    assert growth([100.0, 300.0, 490.0, 500.0, 502.0, 504.0, 506.0], every_s=10) == "+12.0 MB a minute"
    assert growth([100.0, 300.0, 500.0, 500.0, 500.0, 500.0]) == "+0.0 MB a minute"
    assert growth([100.0, 300.0]) == "too short to tell"
