"""The page of a collector: thousands of nodes at a glance, the sick ones first, a click to what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Browser, Page, expect

from ingero.fleet.push import otlp
from tests.browser.access import look
from tests.browser.conftest import Watched
from tests.conftest import require
from tests.ebpf.real_runs import until
from tests.fleet.serving import Collector, collector
from tests.fleet.test_store import fresh
from tests.servers import TOKEN
from tests.unit.fleet.rounds import finding, job

NODES = 2000
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    import importlib.util

    require("fleet", [] if importlib.util.find_spec("chdb") else ["no chdb"])
    home = tmp_path_factory.mktemp("fleet")
    home.chmod(0o700)
    with collector(home, "--node-page", "https://{node}.example:8080/") as running:
        token = running.token_of("*")
        for first in range(0, NODES, 500):
            nodes = [
                fresh(f"n{at:04}", cluster="a" if at % 2 else "b", jobs=[job(namespace=f"team-{at % 3}")])
                for at in range(first, first + 500)
            ]
            assert running.post(b"".join(map(otlp.metrics, nodes)), token)[0] == 200
        sick = [
            fresh(
                "n1500", cluster="b", findings=[finding(severity="CRITICAL", kind="nccl-hang", title=HOSTILE)]
            ),
            fresh("n0007", cluster="a", findings=[finding(severity="MEDIUM")]),
        ]
        for each in sick:
            body = otlp.logs(each)
            assert body is not None
            assert running.post(body, token, path="/v1/logs")[0] == 200
        until(lambda: looked_at(running), "the collector had looked at all of them", 60)
        yield running


def looked_at(running: Collector) -> bool:
    answer = json.loads(running.get("/api/v1/fleet?limit=2")[1])
    return answer["total"] == NODES and [each["state"] for each in answer["nodes"]] == ["critical", "medium"]


@pytest.fixture
def page(fleet: Collector, chromium: Browser, watched: Watched) -> Iterator[Page]:
    context = chromium.new_context(ignore_https_errors=True, viewport={"width": 1300, "height": 850})
    context.set_default_timeout(30_000)
    opened = context.new_page()
    watched.watch(opened)
    opened.goto(f"https://localhost:{fleet.port}/login#token={TOKEN}")
    opened.wait_for_url(f"https://localhost:{fleet.port}/")
    yield opened
    context.close()


def test_every_node_is_on_the_page_and_the_worst_comes_first(page: Page) -> None:
    expect(page.get_by_role("heading", name="2,000 nodes")).to_be_visible()
    squares = page.locator(".fleet-grid a")
    expect(squares).to_have_count(NODES)
    assert squares.nth(0).get_attribute("data-state") == "critical"
    assert squares.nth(1).get_attribute("data-state") == "medium"
    assert squares.nth(2).get_attribute("data-state") == "fine"
    expect(page.get_by_role("row").nth(1)).to_contain_text(HOSTILE)
    expect(page.get_by_text(HOSTILE).first).to_be_visible()  # text, not markup


def test_a_click_leads_to_the_node_and_back_leads_back(page: Page) -> None:
    page.get_by_role("link", name="n0007").first.click()
    expect(page.get_by_role("heading", name="n0007")).to_be_visible()
    expect(page.get_by_role("table")).to_contain_text("log-shipper takes the CPU")
    assert "node=n0007" in page.url
    own = page.get_by_role("link", name="Its own dashboard")
    expect(own).to_have_attribute("href", "https://n0007.example:8080/")
    page.go_back()
    expect(page.get_by_role("heading", name="2,000 nodes")).to_be_visible()


def test_from_a_node_all_that_was_chosen_before_is_one_click_away(page: Page) -> None:
    page.get_by_role("link", name="n0007").first.click()
    page.get_by_role("button", name="All nodes").click()
    expect(page.get_by_role("heading", name="2,000 nodes")).to_be_visible()
    page.get_by_label("cluster").select_option("a")
    page.get_by_role("link", name="n0007").first.click()
    page.get_by_role("button", name="All nodes").click()
    expect(page.get_by_role("heading", name="1,000 nodes")).to_be_visible()


def test_a_phone_shows_why_a_node_is_not_well(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    why = page.get_by_role("cell", name="log-shipper takes the CPU")
    why.scroll_into_view_if_needed()
    box = why.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390


def test_a_nodes_past_is_drawn_where_it_belongs_in_time(page: Page) -> None:
    """It spoke just now, and not in the hours before."""
    page.get_by_role("link", name="n0007").first.click()
    bars = page.locator(".fleet-strip").first.locator("i")
    expect(bars).to_have_count(360)
    known = [at for at in range(300, 360) if "known" in (bars.nth(at).get_attribute("class") or "")]
    expect(page.locator(".fleet-strip").first.locator(".known")).to_have_count(len(known))
    assert 1 <= len(known) <= 10


def test_filters_choose_nodes_and_stand_in_the_address(page: Page) -> None:
    page.get_by_label("finding").select_option("cpu-contention")
    expect(page.locator(".fleet-grid a")).to_have_count(1)
    page.get_by_label("finding").select_option("")
    page.get_by_label("cluster").select_option("b")
    expect(page.get_by_role("heading", name="1,000 nodes")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="1,000 nodes")).to_be_visible()
    page.get_by_role("button", name="1 critical").click()
    expect(page.get_by_role("heading", name="1 node")).to_be_visible()


@pytest.mark.parametrize(
    "place",
    [
        "/fleet",
        "/fleet?node=n0007",
        "/fleet?finding=cpu-contention&cluster=a",
        "/fleet?state=critical",
        "/fleet?job=none",
    ],
)
def test_a_page_of_the_fleet_is_readable_by_everybody(page: Page, axe: str, place: str) -> None:
    page.goto(urljoin(page.url, place))
    page.locator("h1").first.wait_for()
    look(page, axe)
