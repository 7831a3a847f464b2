"""`ingero export`: a recording in the format of another tool.

A format is a module with `write(flags)`; FORMATS says which. Options that only one
format knows are checked there.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingero.serve.cli.options import configured, database

if TYPE_CHECKING:
    from ingero.config import Config

FORMATS = {
    "folded": "ingero.serve.cli.export_folded",
}
EPILOG = """\b
Examples:
  ingero export --format folded -o calls.folded             where calls come from
  ingero export --format folded --what samples --since 5m   where host time goes
  ingero export --format folded --what waits --op disk_wait -o disk.folded
  flamegraph.pl calls.folded > calls.svg
"""


@click.command(epilog=EPILOG)
@click.option("--format", "form", type=click.Choice(list(FORMATS)), required=True, help="What to write.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to this file.  [stdout]"
)
@click.option("--since", metavar="D", help="Only the last D, as in 90s, 5m, 1h.")
@click.option("--from", "start", metavar="T", help="Only from this time on, as in 2026-03-01T02:15.")
@click.option("--to", "end", metavar="T", help="Only up to this time.")
@click.option("--pid", type=click.IntRange(1), help="Only this process.")
@click.option("--op", metavar="NAME", help="Only this operation; with --what waits, this bucket.")
@click.option(
    "--what",
    type=click.Choice(["calls", "samples", "waits", "bytes"]),
    help="folded: what a stack's width is.  [calls]",
)
@database
@configured
def export(config: Config, form: str, **flags: Any) -> int:  # noqa: ARG001
    """Write a recording in the format of another tool.

    folded: stacks for flame graphs (flamegraph.pl, speedscope): calls made, samples on
    a core, nanoseconds waited, or bytes copied and allocated.
    """
    importlib.import_module(FORMATS[form]).write(flags)
    return 0
