"""Other machines of the fleet, chosen at the top of every page."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import WAIT_MS, Open, Start
from tests.browser.serving import Running


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


def test_without_configured_nodes_there_is_nothing_to_choose(server: Running, browse: Open) -> None:
    page = browse(server)
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    expect(page.get_by_label("Machine")).to_be_hidden()
