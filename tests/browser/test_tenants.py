"""One tenant of several: every page and route about processes shows theirs alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from ingero.serve.dashboard.routes import ROUTES, OfTenant
from tests.browser.conftest import Open
from tests.browser.serving import Running, running
from tests.three_tenants import HOST, SLURM, TEAM_A, TEAM_B, record

NARROWED = [route.path for route in ROUTES if issubclass(route.asked, OfTenant)]
EVERYBODY = {TEAM_A, TEAM_B, SLURM, HOST}


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("tenants")
    with running(record(folder / "three.db"), folder) as found:
        yield found
        assert found.alive()


def pids_in(value: Any) -> set[int]:
    """Every process that an answer is about; flame graphs have it in a name, stacks in the line."""
    text = json.dumps(value)
    named = re.findall(r"python \((\d+)\)|step_of_(\d+)", text)
    found = {int(pid) for each in named for pid in each if pid}
    found |= {int(pid) for pid in re.findall(r'"pid": (\d+)', text)}
    lists = re.findall(r'"pids": \[([\d, ]+)\]', text)
    return found | {int(pid) for each in lists for pid in each.split(",")}


def test_every_route_about_processes_can_be_asked_about_one_tenant() -> None:
    assert {
        "explain", "accounting", "operations", "grouped", "kernels", "heatmap", "timeline", "flame", "stacks",
        "graphs", "cost",
    } == set(NARROWED)  # fmt: skip


@pytest.mark.parametrize("path", [each for each in NARROWED if each not in ("kernels", "heatmap", "cost")])
@pytest.mark.parametrize(
    "words, pids", [("namespace=team-a", {TEAM_A}), ("job=4711", {SLURM}), ("", EVERYBODY)]
)
def test_a_route_tells_of_the_tenants_processes_alone(
    tenants: Running, path: str, words: str, pids: set[int]
) -> None:
    said = tenants.ask(f"/api/v1/{path}?{words}")
    assert said.status == 200
    assert pids_in(said.value) == pids


def test_latencies_are_of_the_tenant(tenants: Running) -> None:
    counts = [
        sum(each["count"] for each in tenants.ask(f"/api/v1/heatmap?{words}").value["operations"])
        for words in ("", "namespace=team-b")
    ]
    assert counts == [8, 2]


@pytest.mark.parametrize("path", NARROWED)
def test_a_tenant_that_is_not_there_is_not_found(tenants: Running, path: str) -> None:
    for name in ("nobody", "' OR 1=1 --", "<script>alert(1)</script>", "%", "\u202e"):
        said = tenants.ask(f"/api/v1/{path}?namespace={quote(name)}")
        assert said.status == 404
        assert said.value["hint"] == "It has team-a, team-b."
    assert tenants.ask(f"/api/v1/{path}?namespace={'x' * 5000}").status == 400


def test_groups_are_the_command_lines(tenants: Running) -> None:
    groups = tenants.ask("/api/v1/grouped?by=pod").value["values"]
    assert {each["value"]: set(each["pids"]) for each in groups} == {
        "team-a/trainer-0": {TEAM_A}, "team-b/trainer-0": {TEAM_B}, "(none)": {SLURM, HOST},
    }  # fmt: skip


def shown(page: Page) -> Any:
    return page.locator("section.accounted h2")


def test_a_page_shows_one_namespace_and_the_next_page_too(tenants: Running, browse: Open) -> None:
    page = browse(tenants, "/time?namespace=team-a")
    expect(shown(page)).to_have_text([f"python ({TEAM_A})"])
    whose = page.get_by_role("combobox", name="Whose")
    expect(whose).to_have_value('["namespace","team-a"]')
    whose.select_option('["namespace","team-b"]')
    expect(shown(page)).to_have_text([f"python ({TEAM_B})"])
    expect(page).to_have_url(re.compile(r"/time\?namespace=team-b$"))
    whose.select_option('["job","4711"]')
    expect(shown(page)).to_have_text([f"python ({SLURM})"])
    page.get_by_role("link", name="Flame graph").click()
    expect(page).to_have_url(re.compile(r"/flame\?job=4711$"))
    expect(whose).to_have_value('["job","4711"]')
    page.go_back()
    page.go_back()
    expect(shown(page)).to_have_text([f"python ({TEAM_B})"])
    expect(whose).to_have_value('["namespace","team-b"]')
    whose.select_option("everybody")
    expect(shown(page)).to_have_count(len(EVERYBODY))


def test_who_is_not_there_is_said_on_the_page(tenants: Running, browse: Open, watched: Any) -> None:
    watched.expected = "404"
    page = browse(tenants, "/time?namespace=%3Cimg%20src%3Dx%3E")
    expect(page.get_by_text("there is no namespace '<img src=x>'")).to_be_visible()
    page.get_by_role("combobox", name="Whose").select_option("everybody")
    expect(shown(page)).to_have_count(len(EVERYBODY))


def test_it_is_offered_where_it_changes_something(tenants: Running, browse: Open) -> None:
    page = browse(tenants, "/gpus")
    whose = page.get_by_role("combobox", name="Whose")
    expect(page.get_by_role("heading", name="GPUs")).to_be_visible()
    expect(whose).to_be_hidden()
    page.get_by_role("link", name="Latency").click()
    expect(whose).to_be_visible()
    assert whose.locator("optgroup").evaluate_all("all => all.map(each => each.label)") == [
        "namespace", "pod", "job", "user",
    ]  # fmt: skip


def test_a_long_name_does_not_push_the_page_aside(tenants: Running, browse: Open, watched: Any) -> None:
    watched.expected = "404"
    name = "very-long-" * 25
    page = browse(tenants, f"/time?namespace={name}", viewport={"width": 500, "height": 850})
    expect(page.get_by_role("combobox", name="Whose")).to_have_value(f'["namespace","{name}"]')
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
