"""The report that is sent on: one file, opened from a disk, that asks nobody for anything."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect

from benchmarks.large_database import build, dense, template
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range
from ingero.serve.cli.as_html import as_page
from ingero.serve.cli.diagnosis import Verbosity, diagnosis
from tests.assistants.asking import environment
from tests.browser.access import judged, look, shown_badly, watch_canvases
from tests.browser.conftest import Watched

HOSTILE = "</script><script>window.hacked=1</script><!--<script>"
MOST_BYTES = 2_000_000
# What the timeline is drawn on, at its upper edge.
GROUND = """() => {
  const pen = document.querySelector(".strip canvas").getContext("2d");
  return [...pen.getImageData(1, 1, 1, 1).data.slice(0, 3)];
}"""


@pytest.fixture(scope="module")
def file(incident: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a job whose every name tries to end the script it stands in."""
    folder = tmp_path_factory.mktemp("report")
    db = folder / "hostile.db"
    with sqlite3.connect(incident) as source, sqlite3.connect(db) as copy:
        source.backup(copy)
        for table, column in (("string", "text"), ("process", "comm"), ("frame_text", "text")):
            copy.execute(f"UPDATE {table} SET {column} = {column} || ?", (HOSTILE,))
    return write_report(db)


@pytest.fixture(params=[(1440, "light"), (390, "dark")], ids=str)
def page(file: Path, chromium: Browser, watched: Watched, request: pytest.FixtureRequest) -> Iterator[Page]:
    width, colours = request.param
    size = {"width": width, "height": 850}
    context = chromium.new_context(viewport=size, color_scheme=colours, offline=True)
    watch_canvases(context)
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
    assert not shown_badly(page)
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


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes in which many calls deserved a record."""
    folder = tmp_path_factory.mktemp("long")
    windows = [dense(window) for window in template(time.monotonic_ns())]
    build(folder / "long.db", windows, lambda count: count >= 600)
    return folder / "long.db"


def write_report(db: Path) -> Path:
    file = db.with_suffix(".html")
    words = ["explain", "-d", str(db), "--format", "html", "-o", str(file)]
    subprocess.run([sys.executable, "-m", "ingero", *words], check=True, env=environment(db.parent))
    return file


def test_ten_minutes_make_a_small_file_that_has_everything(
    long: Path, chromium: Browser, watched: Watched, axe: str
) -> None:
    file = write_report(long)
    assert file.stat().st_size < MOST_BYTES
    context = chromium.new_context(offline=True)
    watch_canvases(context)
    page = context.new_page()
    watched.watch(page)
    page.goto(file.as_uri())
    everything_is_there(page)
    expect(page.get_by_role("group", name="Flame graph").first).to_contain_text("train_step")
    look(page, axe)
    for colours in ("light", "dark"):
        page.emulate_media(media="print", color_scheme=colours)  # type: ignore[arg-type]
        everything_is_there(page)
        assert not shown_badly(page) + judged(page, axe)
        assert page.evaluate(GROUND) == [255, 255, 255]
    assert page.pdf().startswith(b"%PDF")
    context.close()


def everything_is_there(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_contain_text("found")
    expect(page.get_by_role("application", name="Timeline of the job")).to_be_visible()
    expect(page.get_by_text("What to do").first).to_be_visible()
    expect(page.locator(".command").first).to_be_visible()


def test_however_much_there_is_to_say_the_file_stays_small(
    file: Path, chromium: Browser, watched: Watched, tmp_path: Path
) -> None:
    """Names that are written six times as long; more findings than anybody reads."""
    db = file.parent / "hostile.db"
    one = get_report(db, Range())
    many = replace(one, findings=one.findings * 1500, processes=one.processes * 300)
    page_of_many = as_page(diagnosis(many, Verbosity()), many, db)
    assert len(page_of_many.encode()) < MOST_BYTES
    (tmp_path / "many.html").write_text(page_of_many)
    context = chromium.new_context(offline=True)
    page = context.new_page()
    watched.watch(page)
    page.goto((tmp_path / "many.html").as_uri())
    everything_is_there(page)
    expect(page.get_by_role("heading", name="1500 problems found")).to_be_visible()
    expect(page.get_by_text("Left out to keep this file small")).to_contain_text("all but the worst")
    context.close()
