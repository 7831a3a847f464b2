"""The table of a soak says what grew, and how long the run really was."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks import reliability
from benchmarks.soak import page
from benchmarks.soak.facts import Facts, append, write_facts
from benchmarks.soak.sample import Sample

STILL = Sample(
    at_s=0, rss_bytes=100_000_000, uss_bytes=60_000_000, threads=7, descriptors=300, children=17, maps=37,
    programs=35, links=47, kernel_bytes=78_000_000, database_bytes=16_000_000, cpu_s=0, jobs=5,
)  # fmt: skip


def run(folder: Path, minutes: int, grows_bytes_per_h: int = 0, problems: tuple[str, ...] = ()) -> Path:
    for second in range(0, minutes * 60, 10):
        rss = STILL.rss_bytes + grows_bytes_per_h * second // 3600
        append(folder, msgspec.structs.replace(STILL, at_s=float(second), rss_bytes=rss, cpu_s=second / 10))
    write_facts(folder, Facts("2026-01-01 00:00 UTC", "16m", 1, jobs=12, problems=list(problems)))
    return folder


def test_a_run_that_holds_still_has_no_growth(tmp_path: Path) -> None:
    text, grown = page.section(run(tmp_path, 70))
    assert not grown
    assert "| resident memory, MB | 100.0 | 100.0 | 100.0 | 100.0 | +0.00 | 4 |" in text
    assert "No job failed, nothing was left behind." in text
    assert "percent of one core: first ten minutes 10.0" in text


def test_growth_is_a_problem_and_is_told(tmp_path: Path) -> None:
    text, grown = page.section(run(tmp_path, 70, grows_bytes_per_h=9_000_000))
    assert grown == ["resident memory, MB grows by 9.00 an hour, limit 4"]
    assert "Grew: resident memory" in text


def test_a_short_run_claims_nothing_about_growth(tmp_path: Path) -> None:
    text, grown = page.section(run(tmp_path, 5, grows_bytes_per_h=9_000_000))
    assert "lasted 5 minutes" in text
    assert "too short to say" in text
    assert not grown


def test_problems_are_on_the_page(tmp_path: Path) -> None:
    text, _ = page.section(run(tmp_path, 5, problems=("job 7 ended with 1",)))
    assert "Problems: job 7 ended with 1." in text
    assert "No job failed" not in text


def test_a_part_of_the_page_is_exchanged_and_the_rest_stays() -> None:
    before = "a\n<!-- soak: written by make soak -->\nold\n<!-- end of soak -->\nb\n"
    after = reliability.put(before, "soak", "new \\1")
    assert after == before.replace("old", "new \\1")
    with pytest.raises(ValueError, match="no part fuzz"):
        reliability.put(before, "fuzz", "new")


def test_the_page_has_a_part_for_every_run() -> None:
    reliability.put(reliability.PAGE.read_text(encoding="utf-8"), "soak", "")
