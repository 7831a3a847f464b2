"""From the collector's page to a node's own dashboard and back, both of them real."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from ingero.fleet.push import otlp
from tests.browser.conftest import WAIT_MS, Start
from tests.browser.serving import Running
from tests.conftest import require
from tests.ebpf.real_runs import until
from tests.fleet.serving import Collector, collector, nodes
from tests.fleet.test_store import fresh
from tests.servers import TOKEN

NO_NAMES = ("evil.example/", "a@evil.example", "evil.example#", "javascript:alert(1)//")
CLUSTERS = ("@evil.example", "/evil", ":1#", "?evil", "\\evil")  # of a cluster nodes are believed more


def a_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def dashboard_port() -> int:
    return a_free_port()


@pytest.fixture
def fleet(home: Path, dashboard_port: int) -> Iterator[Collector]:
    require("fleet", [] if importlib.util.find_spec("chdb") else ["no chdb"])
    told = [
        fresh("localhost", cluster=""),
        *(fresh(f"n{at}", cluster=each) for at, each in enumerate(CLUSTERS)),
    ]
    with collector(home, "--node-page", f"https://{{node}}{{cluster}}:{dashboard_port}/") as running:
        # A gateway: a node's own token is for four clusters at most.
        for each in (*map(fresh, NO_NAMES), *told):
            assert running.post(otlp.metrics(each), running.token_of("*"))[0] == 200
        until(lambda: len(nodes(running)) >= len(told), "the nodes were seen", 60)
        assert {each["node"] for each in nodes(running)} == {each.node for each in told}
        yield running


@pytest.fixture
def dashboard(fleet: Collector, dashboard_port: int, incident: Path, start: Start) -> Running:
    configured = {"INGERO_FLEET": f"https://localhost:{fleet.port}"}
    return start(
        incident, "--addr", f":{dashboard_port}", before=f"import os; os.environ.update({configured!r})"
    )


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    made = chromium.new_context(ignore_https_errors=True)
    made.set_default_timeout(WAIT_MS)
    yield made
    made.close()


def sign_in(context: BrowserContext, port: int) -> Page:
    page = context.new_page()
    page.goto(f"https://localhost:{port}/login#token={TOKEN}")
    page.wait_for_url(f"https://localhost:{port}/")
    return page


def test_a_click_leads_from_the_fleet_to_the_nodes_own_dashboard_and_back(
    fleet: Collector, dashboard: Running, context: BrowserContext
) -> None:
    sign_in(context, dashboard.port).close()
    page = sign_in(context, fleet.port)
    page.goto(f"https://localhost:{fleet.port}/fleet?node=localhost")
    with context.expect_page() as opened:
        page.get_by_role("link", name="Its own dashboard").click()
    own = opened.value
    expect(own).to_have_url(f"https://localhost:{dashboard.port}/")
    expect(own.get_by_role("navigation", name="Pages")).to_contain_text("Timeline")
    expect(own.locator("main")).to_contain_text("stress-ng-cpu")
    with context.expect_page() as opened:
        own.get_by_role("link", name="Fleet").click()
    back = opened.value
    expect(back).to_have_url(f"https://localhost:{fleet.port}/fleet")
    expect(back.locator(".fleet-grid a").first).to_be_visible()


def test_no_name_of_a_node_leads_to_another_address(fleet: Collector, context: BrowserContext) -> None:
    page = sign_in(context, fleet.port)
    for name in (f"n{at}" for at in range(len(CLUSTERS))):
        page.goto(f"https://localhost:{fleet.port}/fleet")
        page.get_by_role("link", name=f"{name}:").click()
        expect(page.get_by_role("heading", name=name)).to_be_visible()
        expect(page.get_by_role("button", name="All nodes")).to_be_visible()
        expect(page.get_by_role("link", name="Its own dashboard")).to_have_count(0)


@pytest.mark.parametrize("address", ["", "http://127.0.0.1:4318"])
def test_without_a_collector_over_tls_there_is_no_link(
    address: str, incident: Path, start: Start, context: BrowserContext
) -> None:
    own = start(
        incident, before=f"import os; os.environ.update({ {'INGERO_FLEET': address} if address else {}!r})"
    )
    page = sign_in(context, own.port)
    page.wait_for_load_state("networkidle")
    expect(page.get_by_role("link", name="Timeline", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="Fleet")).to_have_count(0)
    assert own.ask("/api/v1/collector").value == {"page": ""}


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "https://me:secret@collector:8443", "ftp://collector"]
)
def test_a_collectors_address_that_is_none_is_refused(address: str, incident: Path, start: Start) -> None:
    with pytest.raises(AssertionError, match=r"collector\.address"):
        start(incident, before=f"import os; os.environ['INGERO_FLEET'] = {address!r}")
