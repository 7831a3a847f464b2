"""Hints name a command that runs as it stands: ours, and what installs an extra."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

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


# --- extras ---

HINT = "Install them: pip install 'ingero[mcp]'"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with a pip, in which the program was installed from an index."""
    made = tmp_path / "pipx/venvs/ingero"
    (made / "bin").mkdir(parents=True)
    (made / "bin/pip").touch(mode=0o755)
    monkeypatch.setattr(sys, "prefix", str(made))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "/usr/bin")
    came_from(monkeypatch, None)
    return made


def came_from(monkeypatch: pytest.MonkeyPatch, said: str | None) -> None:
    told = SimpleNamespace(read_text=lambda name: said if name == "direct_url.json" else None)
    monkeypatch.setattr(called.metadata, "distribution", lambda _: told)


def test_an_environment_gets_it_by_its_own_pip(environment: Path) -> None:
    assert runnable(HINT) == f"Install them: {environment}/bin/pip install 'ingero[mcp]'"


def test_where_it_is_activated_pip_will_do(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{environment}/bin")
    assert runnable(HINT) == HINT


def test_outside_an_environment_too(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(environment))
    assert runnable(HINT) == HINT


def test_pipx_has_no_pip_and_is_asked_itself(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (environment / called.PIPX_MADE).touch()
    home = environment.parents[1]
    assert runnable(HINT) == f"Install them: PIPX_HOME={home} pipx inject ingero 'ingero[mcp]'"
    monkeypatch.setenv("HOME", str(home.parent))
    assert runnable(HINT) == "Install them: pipx inject ingero 'ingero[mcp]'"


def test_who_may_not_write_there_is_told_to_use_sudo(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (environment / called.PIPX_MADE).touch()
    monkeypatch.setattr(called.os, "access", lambda *_: False)
    assert runnable(HINT).startswith("Install them: sudo PIPX_HOME=")


def test_a_wheel_that_is_in_no_index_is_named_as_a_file(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = environment / "a b.whl"
    for made in (lambda: None, wheel.touch):
        made()
        came_from(monkeypatch, json.dumps({"url": wheel.as_uri()}))
        expected = f"'ingero[mcp] @ {wheel.as_uri()}'" if wheel.exists() else "'ingero[mcp]'"
        assert runnable(HINT).endswith(f"pip install {expected}")


@pytest.mark.parametrize("said", ["", "{}", "[]", "null", '{"url": 3}', '{"url": "https://x/a.whl"}', "\x00"])
def test_what_pip_noted_may_be_anything(
    environment: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    came_from(monkeypatch, said)
    assert runnable(HINT).endswith("install 'ingero[mcp]'")
