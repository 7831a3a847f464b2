"""Recordings to ask about: one per scenario, made once."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from ingero.agent.diagnosis import LiveDiagnosis
from ingero.scenarios import demo
from ingero.scenarios.catalogue import BY_NAME
from ingero.serve.cli.surfaces import QuietSurface
from tests.conftest import require

INSPECTOR = Path(__file__).parents[2] / "build/inspector/node_modules/.bin/mcp-inspector"


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The database of a scenario."""
    folder = tmp_path_factory.mktemp("recordings")

    @cache
    def record(scenario: str) -> Path:
        db = folder / f"{scenario}.db"
        assert demo.run(demo.Played(BY_NAME[scenario], db, 7, 1e6), QuietSurface(), LiveDiagnosis) == 0
        return db

    return record


@pytest.fixture
def incident(recorded: Callable[[str], Path]) -> Path:
    return recorded("incident")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home directory."""
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture(scope="session")
def inspector() -> list[str]:
    """The command line of the MCP Inspector."""
    named = Path(os.environ.get("INGERO_INSPECTOR", INSPECTOR))
    node = shutil.which("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout if node else "none"
    missing = [] if version >= "v20" else [f"node {version.strip()}, it needs 20"]
    require("inspector", missing + ([] if named.exists() else [f"no {named}: make inspector"]))
    return ["node", str(named), "--cli"]
