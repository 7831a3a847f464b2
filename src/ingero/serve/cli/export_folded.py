"""`ingero export --format folded`: stacks for flame graphs."""

from __future__ import annotations

from typing import Any

import click

from ingero.errors import StoreError
from ingero.serve.answers.folded import WHAT, folded
from ingero.serve.answers.query import Range
from ingero.serve.cli import output


def write(flags: dict[str, Any]) -> None:
    what = flags["what"] or "calls"
    wanted = Range(flags["since"], flags["start"], flags["end"])
    lines = list(folded(flags["db"], wanted, what, flags["pid"], flags["op"]))
    if not lines:
        raise StoreError(
            f"there are no {what} to write", hint="Choose another --what, --op, --pid or a longer time."
        )
    text = "\n".join(lines) + "\n"
    if flags["output"] is None:
        click.echo(text, nl=False)
        return
    output.write_file(flags["output"], text)
    click.echo(f"Wrote {flags['output']}: {len(lines)} stacks, in {WHAT[what].unit}", err=True)
