"""What is said to do next: a command on a line, what it is for beside it or below it, never amid it."""

from __future__ import annotations

from ingero.serve.cli.next_steps import laid_out

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
