"""What is said about the dashboard is true, and its pages keep their promises."""

from __future__ import annotations

import json
import re

import pytest

from ingero.serve.dashboard.openapi import PREFIX, document
from ingero.serve.dashboard.pages import LOGIN_FILES, PAGES, files
from tests.contracts.tree import ROOT, under

PAGE = (ROOT / "docs/dashboard.md").read_text(encoding="utf-8")
FRONTEND = ROOT / "frontend"
# Text from traced processes must stay text, and nothing may be fetched from elsewhere.
FORBIDDEN = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "new Function",
    "http://",
    "https://",
)


def test_every_route_is_on_the_page_and_nothing_else() -> None:
    assert set(re.findall(rf"^\| `({PREFIX}/\w+)`", PAGE, re.M)) == set(document()["paths"])


def test_every_page_is_described_and_in_the_navigation() -> None:
    assert tuple(re.findall(r"^\| `(/\w*)` \|", PAGE, re.M)) == PAGES
    shell = (FRONTEND / "src/app.js").read_text()
    assert tuple(re.findall(r'\{ path: "(/\w*)"', shell)) == PAGES


def test_the_bundled_pages_are_installed() -> None:
    assert set(files()) == {
        "app.js",
        "login.js",
        "fleet.js",
        "report.js",
        "index.html",
        "login.html",
        "fleet.html",
        "style.css",
        "icon.svg",
        "uplot.css",
    }
    assert {name.removeprefix("/") for name in LOGIN_FILES} - {"login"} <= set(files())


@pytest.mark.parametrize("word", FORBIDDEN)
def test_no_page_makes_markup_of_text_or_reaches_elsewhere(word: str) -> None:
    sources = [
        path
        for path in under("frontend", ".js", ".html", ".css")
        if "src" in path.parts or "public" in path.parts
    ]
    assert len(sources) > 15
    assert not [path.name for path in sources if word in path.read_text()]


@pytest.mark.parametrize("name", ["index.html", "login.html", "fleet.html"])
def test_no_script_or_style_stands_inside_a_page(name: str) -> None:
    text = (FRONTEND / "public" / name).read_text()
    assert not re.search(r"<style|<script(?![^>]*src=)|\sstyle=|\son\w+=", text)


def test_packages_are_pinned_by_hash_and_name_no_registry() -> None:
    lock = json.loads((FRONTEND / "package-lock.json").read_text())
    packages = {name: value for name, value in lock["packages"].items() if name}
    assert all(value["integrity"].startswith("sha512-") for value in packages.values())
    assert not [name for name, value in packages.items() if "resolved" in value]
    wanted = json.loads((FRONTEND / "package.json").read_text())
    named = wanted["dependencies"] | wanted["devDependencies"]
    assert {name: lock["packages"][f"node_modules/{name}"]["version"] for name in named} == named
    assert set(wanted["dependencies"]) == {"uplot"}, "every library more is code nobody here reads"


def test_no_module_of_the_pages_is_longer_than_it_should_be() -> None:
    long = [path.name for path in under("frontend", ".js") if len(path.read_text().splitlines()) > 500]
    assert not long
