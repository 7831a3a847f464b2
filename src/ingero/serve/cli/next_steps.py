"""What to do next with a recording: commands that run as they stand, and find it."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from ingero.serve.answers.places import is_found
from ingero.serve.called import how_we_are_called
from ingero.serve.cli.paging import Pager


def about(db: Path) -> str:
    """The option that names it, where a command would not find it by itself."""
    return "" if is_found(db) else f" -d {shlex.quote(str(db))}"


def steps(db: Path) -> list[tuple[str, str]]:
    """Commands, and what each is for."""
    me, where = how_we_are_called(), about(db)
    return [
        (f"{me} explain -v{where}", "every proof"),
        (f"{me} explain --format html -o report.html{where}", "one file to send on"),
        (f"{me} query{where}", "what the calls cost"),
        (f"{me} dashboard{where}", "the same in a browser"),
    ]


def show(found: list[tuple[str, str]]) -> None:
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
    for line in laid_out(found, room):
        click.echo(line)


def laid_out(found: list[tuple[str, str]], room: float) -> Iterator[str]:
    """Side by side; where there is no room for that, what a command is for stands below it."""
    width = max(len(command) for command, _ in found)
    beside = all(width + len(what) + 4 <= room for _, what in found)
    for command, what in found:
        yield f"  {command:{width}}  {what}" if beside else f"  {command}\n      {what}"


def hint(db: Path | None, command: str = "dashboard", what: str = "the same over time, in a browser") -> None:
    """For people only: scripts read what is printed. Below the answer, so when its pager is done."""
    if not sys.stderr.isatty():
        return
    line = f"Next: {how_we_are_called()} {command}{'' if db is None else about(db)}"
    beside = len(line) + len(what) + 5 <= shutil.get_terminal_size().columns
    text = f"\n{line}   ({what})" if beside else f"\n{line}\n      ({what})"
    if isinstance(sys.stdout, Pager):
        click.get_current_context().call_on_close(lambda: click.echo(text, err=True))
    else:
        click.echo(text, err=True)
