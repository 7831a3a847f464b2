"""The pictures in docs/dashboard.md: `python -m tests.browser.screenshots docs/images`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright

from tests.browser.serving import TOKEN, Running, record, running, with_a_gpu

DESK, PHONE = (1180, 760), (390, 780)
SECOND = 1_000_000_000


class Picture(NamedTuple):
    """A page, how it is looked at, and the seconds of the recording it shows."""

    name: str
    path: str
    colours: str
    size: tuple[int, int] = DESK
    seconds: tuple[float, float] | None = None


PICTURES = (
    Picture("wrong-light", "/", "light"),
    Picture("timeline-dark", "/timeline", "dark"),
    Picture("timeline-close-light", "/timeline", "light", seconds=(7.93, 8.12)),
    Picture("latency-light", "/latency", "light"),
    Picture("time-dark", "/time", "dark"),
    Picture("phone-dark", "/timeline", "dark", PHONE),
)


def take(browser: Browser, server: Running, picture: Picture, folder: Path) -> None:
    wide, high = picture.size
    context = browser.new_context(
        ignore_https_errors=True, color_scheme=picture.colours, viewport={"width": wide, "height": high}
    )
    page = context.new_page()
    page.goto(server.url(f"/login#token={TOKEN}"))
    page.wait_for_url(server.url("/"))
    page.goto(server.url(picture.path + _range(server, picture)))
    page.wait_for_timeout(2500)
    page.screenshot(path=folder / f"dashboard-{picture.name}.png")
    context.close()


def _range(server: Running, picture: Picture) -> str:
    if picture.seconds is None:
        return ""
    begin = server.ask("/api/v1/recordings").value["window"]["from_ns"]
    low, high = (begin + int(second * SECOND) for second in picture.seconds)
    return f"?from={low}&to={high}"


def main(folder: Path) -> None:
    chromium = shutil.which("chromium")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        db = with_a_gpu(record("incident", Path(name) / "incident.db"))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with running(db, Path(name)) as server:
            for picture in PICTURES:
                take(browser, server, picture, folder)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
