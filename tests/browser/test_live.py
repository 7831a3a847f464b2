"""A page left open while a recording grows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect

from tests.assistants.asking import environment
from tests.browser.conftest import Open, Start, Watched
from tests.browser.serving import running
from tests.browser.test_timeline import timeline, view


def test_pages_follow_a_recording_as_it_is_written(
    tmp_path: Path, start: Start, browse: Open, watched: Watched
) -> None:
    """Opened before there is a recording; a demo then writes one, and nobody reloads anything."""
    watched.expected = "503"  # there is nothing to answer from at first
    db = tmp_path / "growing.db"
    words = ["demo", "--no-gpu", "--no-tui", "incident", "--speed", "4", "-d", str(db)]
    server = start(db)
    assert next(server.more) == f"  no recording at {db} yet; the pages will show it once it is there"
    first = browse(server)
    expect(first.get_by_role("alert")).to_contain_text("No answer")
    demo = subprocess.Popen(
        [sys.executable, "-m", "ingero", *words], stdout=subprocess.DEVNULL, env=environment(tmp_path)
    )
    try:
        expect(first.get_by_role("heading", name="No problem found")).to_be_visible(timeout=20_000)
        expect(first.locator(".live")).to_have_text("live")
        second = browse(server, "/timeline")
        canvas = timeline(second)
        seen = view(canvas)[1]
        found = first.get_by_role("heading", name=re.compile("[12] problems? found"))
        expect(found).to_be_visible(timeout=20_000)
        assert demo.wait(timeout=60) == 0
    finally:
        demo.kill()
        demo.wait()
    expect(first.locator(".live")).to_have_text("ended", timeout=20_000)
    expect(first.get_by_role("article").first).to_contain_text("stress-ng-cpu")
    expect(canvas).to_have_attribute("data-to", re.compile(r"^(19|20)\d{9}$"), timeout=20_000)
    assert view(canvas)[1] > seen


def test_a_server_that_is_gone_is_said_and_found_again(
    incident: Path, home: Path, start: Start, browse: Open, watched: Watched
) -> None:
    watched.expected = "ERR_"
    with running(incident, home) as server:
        port = server.port
        page = browse(server)
        expect(page.locator(".live")).to_have_text("ended")
    expect(page.locator(".live")).to_have_text("not connected")
    start(incident, "--addr", f":{port}")
    expect(page.locator(".live")).to_have_text("ended", timeout=20_000)
