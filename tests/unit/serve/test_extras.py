"""A hint about an extra is a command for the environment that the program is in."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ingero.serve import extras
from ingero.serve.called import runnable

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
    monkeypatch.setattr(extras.metadata, "distribution", lambda _: told)


def test_an_environment_gets_it_by_its_own_pip(environment: Path) -> None:
    assert runnable(HINT) == f"Install them: {environment}/bin/pip install 'ingero[mcp]'"


def test_where_it_is_activated_pip_will_do(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{environment}/bin")
    assert runnable(HINT) == HINT


def test_outside_an_environment_too(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(environment))
    assert runnable(HINT) == HINT


def test_pipx_has_no_pip_and_is_asked_itself(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (environment / extras.PIPX_MADE).touch()
    home = environment.parents[1]
    assert runnable(HINT) == f"Install them: PIPX_HOME={home} pipx inject ingero 'ingero[mcp]'"
    monkeypatch.setenv("HOME", str(home.parent))
    assert runnable(HINT) == "Install them: pipx inject ingero 'ingero[mcp]'"


def test_who_may_not_write_there_is_told_to_use_sudo(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (environment / extras.PIPX_MADE).touch()
    monkeypatch.setattr(extras.os, "access", lambda *_: False)
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
