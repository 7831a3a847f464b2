"""Every console and every CSV is made in one place, where texts of traced processes become harmless."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

import pytest
from rich.text import Text

from ingero.discover.containers import describe
from ingero.serve.cli.harmless import cell
from ingero.serve.cli.tables import console
from tests.contracts.tree import dotted, name, nodes, text_of, under

# Who may call these; everybody else gets theirs from there.
ALLOWED: dict[str, set[str]] = {
    "Console": {"src/ingero/serve/cli/surfaces.py"},  # into memory, after the reader went away
    "csv.writer": {"src/ingero/serve/cli/output.py", "src/ingero/serve/cli/export_tables.py"},
    "csv.DictWriter": set(),
    "HarmlessConsole": {"src/ingero/serve/cli/tables.py"},
}
HOSTILE = "a\x1b[31mred\x1b]0;t\x07\x9bK\u202eb"
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def calls(text: str) -> Iterator[str]:
    for node in nodes(text):
        if isinstance(node, ast.Call):
            yield dotted(node.func)


def test_no_other_module_makes_a_console_or_writes_csv() -> None:
    found = {
        (name(path), called)
        for path in under("src", ".py")
        for called in calls(text_of(path))
        if name(path) not in ALLOWED.get(called, {name(path)})
    }
    assert not found


@pytest.mark.parametrize("thing", [HOSTILE, Text(HOSTILE)])
def test_a_console_prints_no_control_character_of_a_text(
    thing: object, capsys: pytest.CaptureFixture[str]
) -> None:
    console(sys.stdout).print(thing)
    out = capsys.readouterr().out
    assert "red" in out
    assert not STEERING.search(out)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1+1", "@SUM(A1)", "\t=1", "\x1b=1"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert str(cell(text))[0] in "'\N{REPLACEMENT CHARACTER}"
    assert cell(-5) == -5
    assert cell(b"\xff") == "ff"


def test_a_cgroup_that_spells_an_escape_is_not_taken_at_its_word() -> None:
    """systemd writes a character it cannot have in a name as \\x1b; undone, it would be the real one."""
    found = describe("0::/machine.slice/machine-\\x1b[31mx\x1b.scope/job_1/step_\x1b[2J\n", ())
    texts = [found.cgroup_path, found.container_id, found.job]
    assert all(texts)
    assert not [text for text in texts if text is None or STEERING.search(text)]
