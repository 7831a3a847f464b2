"""How soon the dashboard shows a million calls in a browser, and how quickly one zooms into them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Figure, Section, at_most
from benchmarks.large_database import build, dense, kept, template

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

TITLE = "Looking at a million calls in a browser"
CALLS, QUICK_CALLS = 1_000_000, 100_000
FIRST_VIEW_TARGET_MS, ZOOM_TARGET_MS = 2000, 200
TOKEN = "an-example-token-of-the-benchmark-0123456789"
ZOOMS = 14  # from an hour to milliseconds, and a few back
MOVES = 6


def database(calls: int) -> Path:
    """Stored rows of calls, at least so many."""
    windows = [dense(window) for window in template(time.monotonic_ns())]
    each_turn = sum(len(window.calls) for window in windows)
    seconds = -(-calls * len(windows) // each_turn)
    return kept(f"calls-{calls}", lambda path: build(path, windows, lambda count: count >= seconds))[0]


@contextmanager
def dashboard(db: Path, home: Path) -> Iterator[str]:
    """Its address, once it listens."""
    environ = {**os.environ, "HOME": str(home), "INGERO_TOKEN": TOKEN}
    words = [sys.executable, "-m", "ingero", "dashboard", "--addr", "127.0.0.1:0", "-d", str(db)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environ)
    try:
        assert process.stderr is not None
        found = re.search(r"https://\S+?:\d+", process.stderr.readline())
        if found is None:
            raise RuntimeError("the dashboard did not start")
        yield found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


def _drawn(page: Page, canvas: Locator, act: Any) -> float:
    """Milliseconds from an act to the answer on the screen, by the browser's own clock."""
    page.evaluate(
        "canvas => { window.drawn = new Promise(done => { new MutationObserver((_, me) => { me.disconnect();"
        " requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))); })"
        ".observe(canvas, { attributes: true, attributeFilter: ['data-loaded'] }); });"
        " canvas.addEventListener('wheel', () => { window.begun ??= performance.now(); }, { once: true });"
        " canvas.addEventListener('keydown', () => { window.begun ??= performance.now(); }, { once: true });"
        " window.begun = undefined; }",
        canvas.element_handle(),
    )
    act()
    return float(page.evaluate("async () => (await window.drawn) - window.begun"))


def _first_view(page: Page, url: str) -> float:
    """From asking for the page to the first picture of the timeline."""
    begin = time.perf_counter()
    page.goto(f"{url}/timeline")
    page.wait_for_selector("canvas[data-loaded]")
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return (time.perf_counter() - begin) * 1000


def _zooms(page: Page) -> tuple[list[float], list[float]]:
    canvas = page.locator("canvas")
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 200)
    zooms = []
    for _ in range(ZOOMS):
        zooms.append(_drawn(page, canvas, lambda: page.mouse.wheel(0, -250)))
        page.wait_for_timeout(100)
    canvas.focus()
    moves = []
    for _ in range(MOVES):
        moves.append(_drawn(page, canvas, lambda: page.keyboard.press("ArrowRight")))
        page.wait_for_timeout(100)
    return zooms, moves


def look(db: Path) -> tuple[list[float], list[float], list[float]]:
    """First views, zooms and moves, in milliseconds; each first view by a server just started."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        raise RuntimeError("no chromium")
    firsts: list[float] = []
    zooms: list[float] = []
    moves: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(3):
            with tempfile.TemporaryDirectory() as home, dashboard(db, Path(home)) as url:
                size: Any = {"width": 1400, "height": 900}
                page = browser.new_context(ignore_https_errors=True, viewport=size).new_page()
                page.goto(f"{url}/login#token={TOKEN}")
                page.wait_for_url(f"{url}/")
                page.goto("about:blank")
                firsts.append(_first_view(page, url))
                more, moved = _zooms(page)
                zooms += more
                moves += moved
                page.context.close()
        browser.close()
    return firsts, zooms, moves


METHOD = """\
Chromium, headless, on the same machine as the dashboard and its database; three times, each with a server
just started. First view: from asking for the page to the timeline's first picture. Zoom: from a turn of the
wheel to the picture with the new detail, from the whole recording down to milliseconds; what was there
before is shown larger at once. The database is written by the real writer from made-up seconds of a job."""

RESOLVES = """\
Browser and server share the machine's cores here: who looks from another machine waits less for a core and
more for the network. The file is in the page cache. Far out the roll-ups are read, so the time follows the
number of seconds and threads; close up the rows in view, of which at most 30,000 are read one by one."""


def measure(quick: bool) -> Section:
    calls = QUICK_CALLS if quick else CALLS
    firsts, zooms, moves = look(database(calls))
    middle, worst = statistics.median(zooms), max(zooms)
    figures = (
        Figure("calls stored", f"{calls:,}"),
        at_most(
            "first view, slowest of 3", max(firsts), FIRST_VIEW_TARGET_MS, f"{max(firsts):.0f} ms", " ms"
        ),
        at_most(f"zoom, median of {len(zooms)}", middle, ZOOM_TARGET_MS, f"{middle:.0f} ms", " ms"),
        at_most("zoom, slowest", worst, ZOOM_TARGET_MS, f"{worst:.0f} ms", " ms"),
        Figure(f"move sideways, median of {len(moves)}", f"{statistics.median(moves):.0f} ms"),
    )
    return Section(TITLE, figures, METHOD, RESOLVES)
