"""Every page on recordings of real jobs: readable by everybody, on a desk and on a phone, light and dark.

axe-core looks for what keyboards and screen readers stumble over; the build installs it beside the pages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from benchmarks.corpus.kept import FOLDER, database
from ingero.serve.dashboard.pages import PAGES
from tests.assistants.asking import environment
from tests.browser.access import look
from tests.browser.conftest import Open, Watched
from tests.browser.serving import Running, running
from tests.conftest import require

LOOKS = [(width, colours) for width in (1440, 390) for colours in ("light", "dark")]


@pytest.fixture(scope="module", params=["card", pytest.param("live", marks=pytest.mark.long)])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a job on a real card; and what `demo --live` records here."""
    db = tmp_path_factory.mktemp("real") / "real.db"
    if request.param == "live":
        require("ebpf", [] if os.geteuid() == 0 else ["not root"])
        words = ["demo", "--live", "--no-tui", "-d", str(db), "incident"]
        surroundings = environment(db.parent) | {"INGERO_RUN_DIR": str(db.parent)}
        subprocess.run([sys.executable, "-m", "ingero", *words], check=True, env=surroundings)
        return db
    with database(FOLDER / "card" / "decode-medium.json") as recording:
        return Path(shutil.copy(recording, db))


@pytest.fixture(scope="module")
def dashboard(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(real, tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("width", "colours"), LOOKS)
def test_a_page_is_readable_by_everybody(
    dashboard: Running, browse: Open, axe: str, path: str, width: int, colours: str
) -> None:
    page = browse(dashboard, path, viewport={"width": width, "height": 900}, color_scheme=colours)
    page.wait_for_load_state("networkidle")
    page.locator("#page :is(h1, h2, canvas)").first.wait_for()
    look(page, axe)


@pytest.mark.parametrize(("width", "colours"), LOOKS)
def test_signing_in_is_possible_for_everybody(
    dashboard: Running, browse: Open, axe: str, width: int, colours: str
) -> None:
    page = browse(
        dashboard, "/login", sign_in=False, viewport={"width": width, "height": 900}, color_scheme=colours
    )
    page.locator("h1").wait_for()
    look(page, axe)


@pytest.mark.parametrize(("width", "colours"), LOOKS)
def test_a_report_is_readable_by_everybody(
    real: Path, chromium: Browser, watched: Watched, axe: str, width: int, colours: str
) -> None:
    file = real.parent / "report.html"
    if not file.exists():
        words = ["explain", "-d", str(real), "--format", "html", "-o", str(file)]
        subprocess.run([sys.executable, "-m", "ingero", *words], check=True, env=environment(real.parent))
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=colours, offline=True
    )
    page = context.new_page()
    watched.watch(page)
    page.goto(file.as_uri())
    page.locator("main h1").wait_for()
    look(page, axe)
    context.close()
