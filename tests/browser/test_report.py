"""The report that is sent on: one file, opened from a disk, that asks nobody for anything."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.assistants.asking import environment
from tests.browser.conftest import Watched

HOSTILE = "</script><script>window.hacked=1</script><!--<script>"
MOST_BYTES = 2_000_000


@pytest.fixture(scope="module")
def file(incident: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a job whose every name tries to end the script it stands in."""
    folder = tmp_path_factory.mktemp("report")
    db = folder / "hostile.db"
    with sqlite3.connect(incident) as source, sqlite3.connect(db) as copy:
        source.backup(copy)
        for table, column in (("string", "text"), ("process", "comm"), ("frame_text", "text")):
            copy.execute(f"UPDATE {table} SET {column} = {column} || ?", (HOSTILE,))
    words = ["explain", "-d", str(db), "--format", "html", "-o", str(folder / "report.html")]
    subprocess.run([sys.executable, "-m", "ingero", *words], check=True, env=environment(folder))
    return folder / "report.html"


@pytest.fixture(params=[(1440, "light"), (390, "dark")], ids=str)
def page(file: Path, chromium: Browser, watched: Watched, request: pytest.FixtureRequest) -> Iterator[Page]:
    width, colours = request.param
    size = {"width": width, "height": 850}
    context = chromium.new_context(viewport=size, color_scheme=colours, offline=True)
    opened = context.new_page()
    watched.watch(opened)
    opened.goto(file.as_uri())
    yield opened
    context.close()


def test_a_report_shows_everything_without_a_network(page: Page, watched: Watched) -> None:
    expect(page.get_by_role("heading", name="1 problem found")).to_be_visible()
    expect(page.get_by_role("application", name="Timeline of the job")).to_be_visible()
    expect(page.get_by_role("article")).to_contain_text("Before and after")
    expect(page.get_by_role("button", name="Copy: ").first).to_be_visible()
    expect(page.get_by_role("group", name="Flame graph").first).to_contain_text("train_step")
    expect(page.get_by_text("Not covered")).to_be_visible()
    text = page.locator("body").inner_text()
    assert not [bad for bad in ("undefined", "[object", "NaN") if bad in text]
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]  # type: ignore[index]
    assert watched.hosts <= {None, ""}


def test_names_in_a_report_are_data(page: Page, file: Path) -> None:
    expect(page.get_by_role("article")).to_contain_text(HOSTILE)
    assert page.evaluate("window.hacked") is None
    text = file.read_text()
    assert text.count("<script") == 2
    assert "default-src 'none'" in text
    assert "unsafe" not in text.split("</head>")[0]
    assert len(text.encode()) < MOST_BYTES


def test_a_second_of_a_report_says_who_had_the_core(page: Page) -> None:
    told = page.locator(".strip .told")
    canvas = page.get_by_role("application", name="Timeline of the job")
    canvas.focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    seen = []
    for _ in range(40):
        page.keyboard.press(".")
        seen.append(told.inner_text())
    for _ in range(8):
        page.keyboard.press("ArrowUp")
        for _ in range(25):
            page.keyboard.press(".")
            seen.append(told.inner_text())
        if any("the core was had by stress-ng-cpu" in each for each in seen):
            break
    assert any("the core was had by stress-ng-cpu" in each for each in seen), set(seen)
