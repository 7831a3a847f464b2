"""Hints name a command that runs as it stands."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from ingero.serve import called
from ingero.serve.called import runnable
from ingero.serve.dashboard.api import failed


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that no PATH leads to."""
    program = tmp_path / ".venv" / "bin" / "ingero"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(tmp_path)
    return program


def test_in_a_clone_the_program_is_named_where_it_lies(clone: Path) -> None:
    assert runnable("ingero explain -d x.db") == ".venv/bin/ingero explain -d x.db"
    assert runnable("See `ingero --help`.") == "See `.venv/bin/ingero --help`."


@pytest.mark.parametrize("elsewhere", ["/usr", "/"])
def test_from_elsewhere_it_has_its_whole_path(
    clone: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    monkeypatch.chdir(elsewhere)
    assert runnable("Run `ingero check`.") == f"Run `{clone} check`."


def test_sudo_gets_a_path_because_it_looks_in_places_of_its_own(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(called.os, "geteuid", lambda: 1000)
    assert runnable("sudo ingero trace") == "sudo .venv/bin/ingero trace"


def test_root_needs_no_sudo(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(called.os, "geteuid", lambda: 0)
    assert runnable("sudo ingero trace") == ".venv/bin/ingero trace"


def test_where_the_shell_finds_it_it_is_called_by_its_name(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(clone.parent))
    assert runnable("ingero explain") == "ingero explain"


def test_a_folder_with_a_blank_is_quoted(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spaced = clone.parent / "my tools" / "ingero"
    spaced.parent.mkdir()
    spaced.write_text("")
    monkeypatch.setattr(sys, "argv", [str(spaced)])
    assert shlex.split(runnable("ingero explain"))[1:] == ["explain"]


@pytest.mark.parametrize(
    "text", ["ingero itself took a core", "~/.ingero/ingero.db", "pip install ingero", "/opt/ingero trace"]
)
def test_other_words_stay(clone: Path, text: str) -> None:
    assert runnable(text) == text


def test_hints_of_the_dashboard_run_as_well(clone: Path) -> None:
    told = json.loads(bytes(failed(404, "there is no database", "Record one with `ingero trace`.").body))
    assert told["hint"] == "Record one with `.venv/bin/ingero trace`."
