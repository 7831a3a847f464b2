"""The pictures of the README, from a real run: `make tour`. Needs root and Chromium.

`ingero demo --live` records a real job; what terminal, dashboard and report show of it is drawn as it is.
Only the folder of this checkout is renamed: it says nothing about the product.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from playwright.sync_api import Browser, ViewportSize, sync_playwright
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI

from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range
from ingero.serve.cli.as_text import write_text
from ingero.serve.cli.diagnosis import Verbosity, diagnosis
from tests.browser.serving import TOKEN, running

ROOT = Path(__file__).parent.parent
NAMED = "/opt/ingero"
WHERE_PATHS_STAND = (("string", "text"), ("frame_text", "text"), ("process", "cmdline"))
COLUMNS = 110
SIZE = ViewportSize(width=1100, height=700)
# rich's pictures load a font from elsewhere; ours load nothing.
SVG = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.S)


def record(db: Path) -> None:
    words = [sys.executable, "-m", "ingero", "demo", "--live", "--no-tui", "-d", str(db), "incident"]
    subprocess.run(words, check=True)


def renamed(db: Path, copy: Path) -> Path:
    shutil.copy(db, copy)
    with sqlite3.connect(copy) as connection:
        for table, column in WHERE_PATHS_STAND:
            connection.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (str(ROOT), NAMED))
    connection.close()
    return copy


def terminal(db: Path, picture: Path) -> None:
    console = Console(
        record=True, width=COLUMNS, file=StringIO(), force_terminal=True, highlight=False, markup=False
    )
    write_text(diagnosis(get_report(db, Range()), Verbosity()), console)
    drawn = console.export_svg(title="ingero explain", theme=MONOKAI, code_format=SVG)
    picture.write_text("\n".join(line.rstrip() for line in drawn.splitlines()) + "\n", encoding="utf-8")


def dashboard(browser: Browser, db: Path, home: Path, picture: Path) -> None:
    with running(db, home) as server:
        page = browser.new_context(ignore_https_errors=True, viewport=SIZE).new_page()
        page.goto(server.url(f"/login#token={TOKEN}"))
        page.wait_for_url(server.url("/"))
        page.locator("canvas").wait_for()
        page.wait_for_load_state("networkidle")
        page.screenshot(path=picture)


def report(browser: Browser, db: Path, home: Path, picture: Path) -> None:
    file = home / "report.html"
    words = [sys.executable, "-m", "ingero", "explain", "-d", str(db), "--format", "html", "-o", str(file)]
    subprocess.run(words, check=True)
    page = browser.new_context(viewport=SIZE, color_scheme="dark", offline=True).new_page()
    page.goto(file.as_uri())
    page.locator("article").first.scroll_into_view_if_needed()
    page.screenshot(path=picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", type=Path, help="a recording of `ingero demo --live`, instead of a new one")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        home = Path(name)
        if given.db is None:
            record(home / "recorded.db")
        db = renamed(given.db or home / "recorded.db", home / "tour.db")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        terminal(db, given.folder / "tour-terminal.svg")
        dashboard(browser, db, home, given.folder / "tour-dashboard.png")
        report(browser, db, home, given.folder / "tour-report.png")
        browser.close()


if __name__ == "__main__":
    main()
