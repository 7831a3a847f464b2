"""Every page on recordings of real jobs, and what one comes to see on it: readable by everybody.

axe-core looks for what keyboards and screen readers stumble over; the build installs it beside the pages. On
a desk and on a phone, light and dark: `look` turns the page that is open into each.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect

from benchmarks.corpus.kept import FOLDER, database
from ingero.serve.dashboard.pages import PAGES
from tests.assistants.asking import environment
from tests.browser.access import look, watch_canvases
from tests.browser.conftest import Open, Start, Watched
from tests.browser.live import live
from tests.browser.serving import Running, merged, running
from tests.browser.test_timeline import timeline

GROUPS = ("namespace", "job", "user", "pod", "owner", "container", "node", "process")


@pytest.fixture(scope="module", params=["card", "live"])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a job on a real card; of one on the stub, with real probes."""
    db = tmp_path_factory.mktemp("real") / "real.db"
    found = live() if request.param == "live" else database(FOLDER / "card" / "decode-medium.json")
    with found as recording:
        return Path(shutil.copy(recording, db))


@pytest.fixture(scope="module")
def dashboard(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(real, tmp_path_factory.mktemp("home")) as found:
        yield found


def shown(page: Page) -> None:
    """What was asked for stands there."""
    page.wait_for_load_state("networkidle")
    page.locator("#page :is(h1, h2, canvas)").first.wait_for()
    expect(page.locator("#page [aria-busy]")).to_have_count(0)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_readable_by_everybody(dashboard: Running, browse: Open, axe: str, path: str) -> None:
    page = browse(dashboard, path)
    shown(page)
    look(page, axe)


# What one comes to see on a page by using it.


def a_call_opened(page: Page) -> None:
    canvas = timeline(page)
    canvas.focus()
    for _ in range(20):
        page.keyboard.press("ArrowDown")
        if "calls:" in (page.locator("#timeline-said").text_content() or ""):
            break
    page.keyboard.press("Enter")
    details = page.get_by_role("complementary", name="Details")
    expect(details).to_contain_text("Stack")
    expect(details).to_contain_text(re.compile("At[0-9:]{8}"))


def a_second_told(page: Page) -> None:
    page.get_by_role("application", name="Timeline of the job").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press(".")
    expect(page.locator(".strip .told")).to_contain_text(re.compile("[0-9:]{8}"))


def a_frame_chosen(page: Page) -> None:
    page.get_by_role("group", name="Flame graph").get_by_role("button").nth(2).click()
    page.get_by_role("searchbox", name="Search frames").fill("e")
    expect(page.get_by_role("status").filter(has_text="matches")).to_be_visible()


def nothing_found(page: Page) -> None:
    page.get_by_role("searchbox", name="Filter operations").fill("no such operation")
    expect(page.get_by_text("No operation has that name.")).to_be_visible()


def with_a_price(page: Page) -> None:
    page.get_by_label("Price of a GPU for an hour").fill("2.49")
    page.get_by_label("Price of a GPU for an hour").press("Enter")
    page.wait_for_load_state("networkidle")


def asked(sql: str) -> Callable[[Page], None]:
    def ask(page: Page) -> None:
        page.get_by_role("textbox", name="SQL").fill(sql)
        page.get_by_role("button", name="Run").click()
        page.locator(".result").get_by_role("alert").or_(page.get_by_role("region", name="Result")).wait_for()
        page.wait_for_load_state("networkidle")

    return ask


class Use(NamedTuple):
    """A page, and what is done on it."""

    path: str
    act: Callable[[Page], None] | None = None
    refused: str = ""  # part of what the browser says of an answer that is meant to fail


USES = {
    "by container": Use("/time?by=container"),
    "a call opened": Use("/timeline", a_call_opened),
    "a second told": Use("/", a_second_told),
    "allocations": Use("/flame?what=allocations"),
    "waits": Use("/flame?what=waits"),
    "samples": Use("/flame?what=samples"),
    "a frame chosen": Use("/flame", a_frame_chosen),
    "nothing found": Use("/latency", nothing_found),
    "a price": Use("/cost", with_a_price),
    "no rows": Use("/sql", asked("SELECT NULL AS missing, * FROM calls WHERE 0")),
    "an error": Use("/sql", asked("SELEC 1"), refused="400"),
    "an empty stretch": Use("/?from=1000000000000000000&to=1000000001000000000", refused="400"),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_one_comes_to_see_is_readable_by_everybody(
    dashboard: Running, browse: Open, watched: Watched, axe: str, use: Use
) -> None:
    watched.expected = use.refused
    page = browse(dashboard, use.path)
    shown(page)
    if use.act:
        use.act(page)
    look(page, axe)


@pytest.mark.parametrize("real", ["live"], indirect=True)
@pytest.mark.parametrize("by", GROUPS)
def test_what_gpus_cost_is_readable_by_everybody(dashboard: Running, browse: Open, axe: str, by: str) -> None:
    page = browse(dashboard, "/cost")
    page.locator("#cost-by").select_option(by)
    shown(page)
    look(page, axe)


@pytest.mark.parametrize("real", ["live"], indirect=True)
def test_a_finding_chosen_on_the_timeline_is_readable_by_everybody(
    dashboard: Running, browse: Open, axe: str
) -> None:
    page = browse(dashboard, "/timeline")
    canvas = timeline(page)
    expect(canvas).to_have_attribute("data-findings", re.compile("[1-9]"))
    box = canvas.bounding_box()
    assert box
    for x in range(200, int(box["width"]), 40):
        canvas.click(position={"x": x, "y": 60})
        if "/timeline" not in page.url:
            break
    shown(page)
    look(page, axe)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Both recordings as two nodes of one database."""
    folder = tmp_path_factory.mktemp("several")
    with live() as first, database(FOLDER / "card" / "decode-medium.json") as second:
        db = merged(folder / "several.db", first, second)
    with running(db, folder) as found:
        yield found


@pytest.mark.parametrize("path", ["/", "/timeline", "/time"])
def test_one_node_of_several_is_readable_by_everybody(
    several: Running, browse: Open, axe: str, path: str
) -> None:
    page = browse(several, path)
    shown(page)
    look(page, axe)
    page.get_by_role("combobox", name="Node").select_option(index=1)
    expect(page).to_have_url(re.compile("node="))
    shown(page)
    look(page, axe)


# What is shown where there is nothing to show.


def damaged(folder: Path) -> Path:
    with live() as recording:
        content = bytearray(recording.read_bytes())
    content[4096 : len(content) // 2] = b"\xa5" * (len(content) // 2 - 4096)
    (folder / "damaged.db").write_bytes(content)
    return folder / "damaged.db"


def no_recording(folder: Path) -> Path:
    return folder / "missing.db"


@pytest.mark.parametrize("broken", [no_recording, damaged])
def test_why_there_is_no_answer_is_readable_by_everybody(
    start: Start, browse: Open, watched: Watched, axe: str, tmp_path: Path, broken: Callable[[Path], Path]
) -> None:
    watched.expected = "50"
    page = browse(start(broken(tmp_path)))
    expect(page.get_by_role("alert")).to_contain_text("No answer")
    expect(page.locator(".live")).to_have_text("no recording")
    expect(page.get_by_role("combobox")).to_have_count(0)
    expect(page.get_by_role("alert")).not_to_contain_text("`")
    look(page, axe)


def test_a_link_to_a_node_that_is_not_there_says_so(
    several: Running, browse: Open, watched: Watched, axe: str
) -> None:
    watched.expected = "404"
    page = browse(several, "/?node=nobody")
    expect(page.get_by_text("There is no node nobody in this recording")).to_be_visible()
    shown(page)
    look(page, axe)
    page.get_by_role("combobox", name="Node").select_option(index=1)
    expect(page.get_by_text("There is no node")).to_be_hidden()


def test_signing_in_is_possible_for_everybody(dashboard: Running, browse: Open, axe: str) -> None:
    page = browse(dashboard, "/login", sign_in=False)
    page.locator("h1").wait_for()
    look(page, axe)


def test_a_report_is_readable_by_everybody(real: Path, chromium: Browser, watched: Watched, axe: str) -> None:
    file = real.parent / "report.html"
    words = ["explain", "-d", str(real), "--format", "html", "-o", str(file)]
    subprocess.run([sys.executable, "-m", "ingero", *words], check=True, env=environment(real.parent))
    context = chromium.new_context(offline=True)
    watch_canvases(context)
    page = context.new_page()
    watched.watch(page)
    page.goto(file.as_uri())
    page.locator("main h1").wait_for()
    look(page, axe)
    context.close()
