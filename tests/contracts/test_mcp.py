"""What is said about the MCP server is true: its page, and the file for registries."""

from __future__ import annotations

import inspect
import json
import re
from typing import get_args

import pytest

import ingero
from ingero.serve.mcp.server import TOOLS, description_of, investigate
from ingero.serve.mcp.tools import Scenario, Tools
from tests.contracts.tree import ROOT

PAGE = (ROOT / "docs/mcp.md").read_text(encoding="utf-8")


def section(tool: str) -> str:
    found = re.search(rf"^### {tool}\n(.*?)(?=^##)", PAGE, re.M | re.S)
    assert found, f"docs/mcp.md has no section about {tool}"
    return found[1]


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_has_a_section_that_lists_its_arguments(tool: str) -> None:
    arguments = [name for name in inspect.signature(getattr(Tools, tool)).parameters if name != "self"]
    assert section(tool).strip().startswith(f"`{' '.join(arguments)}`.")


def test_no_tool_is_described_that_is_not_there() -> None:
    assert set(re.findall(r"^### (\w+)$", PAGE, re.M)) == set(TOOLS)
    public = {name for name in vars(Tools) if not name.startswith("_")}
    assert public == set(TOOLS)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_says_what_it_is_for(tool: str) -> None:
    text = description_of(getattr(Tools, tool))
    assert 50 < len(text) < 3200
    assert text.rstrip().endswith((".", "means."))


def test_every_scenario_can_be_shown() -> None:
    from ingero.scenarios.catalogue import ALL

    assert get_args(Scenario) == tuple(each.name for each in ALL)
    assert all(each.name in section("run_demo").replace("\n", " ") for each in ALL)


def test_the_prompt_names_only_tools_that_exist() -> None:
    named = set(re.findall(r"\b(?:get|run|query|graph)_\w+", investigate()))
    assert named <= set(TOOLS)


def test_the_description_for_registries_fits_the_package() -> None:
    server = json.loads((ROOT / "server.json").read_text())
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server["name"])
    assert len(server["description"]) <= 100
    (package,) = server["packages"]
    assert server["version"] == package["version"] == ingero.__version__
    assert package["transport"] == {"type": "stdio"}
    assert [each["value"] for each in package["packageArguments"]] == ["mcp"]
    assert f"mcp-name: {server['name']}" in (ROOT / "README.md").read_text(encoding="utf-8")
