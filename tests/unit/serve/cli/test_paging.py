"""Long answers go through a pager, and only on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from ingero.serve.cli.main import main
from ingero.serve.cli.paging import pager_words


@pytest.mark.parametrize(
    ("pager", "words"),
    [("sh -c x", ["sh", "-c", "x"]), ("", []), ("cat", []), ("no-such", []), ("'", [])],
)
def test_whose_pager(monkeypatch: pytest.MonkeyPatch, pager: str, words: list[str]) -> None:
    monkeypatch.setenv("PAGER", pager)
    assert pager_words() == words


def on_a_terminal(command: list[str], environment: dict[str, str]) -> str:
    """All that it shows there."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=environment, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:
                break
            text += part
        os.close(ours)
        assert process.wait(30) == 0
    return text.decode()


def schema(tmp_path: Path, *flags: str, terminal: bool) -> tuple[str, bool]:
    """What `query --schema` prints, and whether a pager had it."""
    seen = tmp_path / "seen"
    pager = f"{sys.executable} -c \"import sys; t=sys.stdin.read(); open('{seen}','w').write(t); print(t)\""
    environment = {**os.environ, "PAGER": pager, "HOME": str(tmp_path), "TERM": "xterm"}
    command = [sys.executable, "-m", "ingero", "query", "--schema", *flags]
    if not terminal:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout, seen.exists()
    text = on_a_terminal(command, environment)
    return text, seen.exists()


def test_on_a_terminal_the_answer_goes_through_it_and_elsewhere_not(tmp_path: Path) -> None:
    text, had = schema(tmp_path, terminal=False)
    assert "thread_time" in text
    assert not had
    text, had = schema(tmp_path, "--no-pager", terminal=True)
    assert "thread_time" in text
    assert not had
    text, had = schema(tmp_path, terminal=True)
    assert "thread_time" in text
    assert had


def test_what_to_do_next_is_said_when_the_pager_is_done(tmp_path: Path) -> None:
    """Said before, it would stand above the answer, or amid it."""
    pager = f"{sys.executable} -c \"import sys; sys.stdin.read(); print('READ TO THE END')\""
    environment = {**os.environ, "PAGER": pager, "HOME": str(tmp_path), "TERM": "xterm"}
    db = tmp_path / "demo.db"
    assert main(["demo", "--no-gpu", "--no-tui", "--speed", "10000", "-d", str(db)]) == 0
    command = [sys.executable, "-m", "ingero", "explain", "-d", str(db)]
    text = on_a_terminal(command, environment)
    assert 0 <= text.index("READ TO THE END") < text.index("Next: ")
