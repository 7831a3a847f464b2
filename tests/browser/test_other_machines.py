"""Other machines of the fleet, chosen at the top of every page."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Route, expect

from ingero.serve.dashboard.pages import PAGES
from tests.browser.conftest import WAIT_MS, Open, Start
from tests.browser.serving import Running

NOT_OF_A_MACHINE = ("/fleet?", "/collector?", "/live")
LATE = {
    "recordings": {
        "nodes": ["too-late", "too-late-2"],
        "recordings": [],
        "window": {"from_ns": 1, "to_ns": 2},
    },
    "tenants": {"namespace": ["too-late"], "pod": [], "job": [], "user": []},
}


def test_a_machine_that_is_chosen_is_shown_on_every_page(
    incident: Path, both: Running, start: Start, browse: Open
) -> None:
    there = f"localhost:{both.port}"
    configured = {"INGERO_FLEET_NODES": f"{there},localhost:1", "INGERO_FLEET_CA_CERT": str(both.trusted)}
    page = browse(start(incident, before=f"import os; os.environ.update({configured!r})"))
    machines = page.get_by_label("Machine")
    expect(machines.locator("option")).to_have_count(3, timeout=WAIT_MS)
    expect(machines.locator("option").nth(2)).to_be_disabled()
    expect(machines.locator("option").nth(2)).to_have_text("localhost:1: down")
    machines.select_option(there)
    expect(page.get_by_label("Node")).to_contain_text("all 2 nodes", timeout=WAIT_MS)
    page.get_by_role("link", name="SQL").click()
    expect(page).to_have_url(re.compile(f"fleet=localhost%3A{both.port}"))
    page.get_by_label("Machine").select_option("")
    expect(page.get_by_label("Node")).to_be_hidden(timeout=WAIT_MS)


@pytest.mark.parametrize("question", LATE)
def test_an_answer_that_comes_late_is_not_shown_for_the_machine_chosen_since(
    question: str, incident: Path, both: Running, start: Start, browse: Open
) -> None:
    there, of_there = f"localhost:{both.port}", re.compile(rf"/{question}\?fleet=")
    configured = {"INGERO_FLEET_NODES": there, "INGERO_FLEET_CA_CERT": str(both.trusted)}
    page = browse(start(incident, before=f"import os; os.environ.update({configured!r})"))
    machines = page.get_by_label("Machine")
    expect(machines.locator("option")).to_have_count(2, timeout=WAIT_MS)
    held: list[Route] = []
    page.route(of_there, lambda route: held.append(route))
    with page.expect_request(of_there):
        machines.select_option(there)
    with page.expect_response(re.compile(r"/tenants(?!.*fleet=)")):
        machines.select_option("")
    with page.expect_response(of_there) as late:
        held[0].fulfill(json=LATE[question])
    late.value.finished()
    page.evaluate("fetch('/api/v1/health')")  # by then the page has seen the late one
    assert "too-late" not in page.content()


def test_every_page_asks_the_machine_that_is_chosen(
    incident: Path, both: Running, start: Start, browse: Open
) -> None:
    there = f"localhost:{both.port}"
    configured = {"INGERO_FLEET_NODES": there, "INGERO_FLEET_CA_CERT": str(both.trusted)}
    page = browse(start(incident, before=f"import os; os.environ.update({configured!r})"))
    expect(page.get_by_label("Machine").locator("option")).to_have_count(2, timeout=WAIT_MS)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in PAGES:
        asked.clear()
        page.goto(urljoin(page.url, f"{path}?fleet={there}"))
        page.wait_for_load_state("networkidle")
        questions = [url for url in asked if "/api/v1/" in url and not url.endswith(NOT_OF_A_MACHINE)]
        assert questions, path
        assert not [url for url in questions if "fleet=localhost%3A" not in url], path


def test_the_timeline_turns_to_the_machine_that_is_chosen(
    incident: Path, both: Running, start: Start, browse: Open
) -> None:
    configured = {"INGERO_FLEET_NODES": f"localhost:{both.port}", "INGERO_FLEET_CA_CERT": str(both.trusted)}
    page = browse(start(incident, before=f"import os; os.environ.update({configured!r})"), "/timeline")
    canvas = page.locator("canvas")
    expect(canvas).to_have_attribute("data-findings", "1", timeout=WAIT_MS)
    page.get_by_label("Machine").select_option(f"localhost:{both.port}")
    expect(canvas).to_have_attribute("data-findings", "3", timeout=WAIT_MS)
    window = both.ask("/api/v1/recordings").value["window"]
    expect(canvas).to_have_attribute("data-from", "0")
    expect(canvas).to_have_attribute("data-to", near(window["to_ns"] - window["from_ns"]))


def near(ns: int) -> re.Pattern[str]:
    """To the microsecond: the page counts in floating point."""
    return re.compile(f"^{str(ns)[:-3]}")


def test_without_configured_nodes_there_is_nothing_to_choose(server: Running, browse: Open) -> None:
    page = browse(server)
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    expect(page.get_by_label("Machine")).to_be_hidden()
