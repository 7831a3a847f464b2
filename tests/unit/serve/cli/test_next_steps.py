"""What is said to do next: a command on a line, what it is for beside it or below it, never amid it."""

from __future__ import annotations

import pytest

from ingero.serve.cli.next_steps import hint, laid_out

FOUND = [("ingero explain -v", "every proof"), ("ingero query", "what the calls cost")]


def test_what_commands_are_for_stands_beside_them_in_a_column() -> None:
    assert list(laid_out(FOUND, 80)) == [
        "  ingero explain -v  every proof",
        "  ingero query       what the calls cost",
    ]


def test_on_a_narrow_terminal_it_stands_below_them() -> None:
    assert list(laid_out(FOUND, 39)) == [
        "  ingero explain -v\n      every proof",
        "  ingero query\n      what the calls cost",
    ]


@pytest.mark.parametrize(
    ("columns", "shown"),
    [(80, "Next: ingero dashboard   (the same over time, in a browser)"),
     (40, "Next: ingero dashboard\n      (the same over time, in a browser)")],
)  # fmt: skip
def test_what_comes_next_is_never_broken_amid_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int, shown: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("ingero.serve.cli.next_steps.how_we_are_called", lambda: "ingero")
    hint(None)
    assert capsys.readouterr().err == f"\n{shown}\n"
