"""`ingero export --format folded`: stacks for flame graphs."""

from __future__ import annotations

import click

from ingero.errors import StoreError, UsageError
from ingero.serve.answers.flame import FOLDED_BY, folded
from ingero.serve.cli import output
from ingero.serve.cli.export import Export


def export_folded(request: Export) -> None:
    if request.into_folder:
        raise UsageError("stacks are written to one file", hint="Name it with -o, e.g. -o calls.folded.")
    what = request.what or "calls"
    lines = list(folded(request.db, request.when, what, request.pid, request.op, request.node))
    if not lines:
        raise StoreError(
            f"there are no {what} to write", hint="Choose another --what, --op, --pid or a longer time."
        )
    text = "\n".join(lines) + "\n"
    if request.output is None:
        click.echo(text, nl=False)
        return
    output.write_file(request.output, text)
    click.echo(f"Wrote {request.output}: {len(lines)} stacks, in {FOLDED_BY[what].unit}", err=True)
