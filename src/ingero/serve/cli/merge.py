"""`ingero merge`: databases of several nodes, or of several times, made into one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingero.errors import UsageError
from ingero.serve.cli.options import as_json, configured

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.serve.answers.merging import ClockNote, MergeAnswer

EPILOG = """\b
Examples:
  ingero merge node-01.db node-02.db node-03.db -o cluster.db
  ingero merge node-04.db -o cluster.db             adds to an earlier result
  ingero merge old.db -o new.db --force-node gpu-node-07
  ingero explain -d cluster.db --node gpu-node-02
"""


@click.command(epilog=EPILOG)
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False), metavar="FILE..."
)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE",
    help="The result. An existing file is only added to, and only if a merge made it.",
)  # fmt: skip
@click.option(
    "--force-node", metavar="NAME", help="Node of files that do not say on which they were recorded."
)
@as_json
@configured
def merge(
    config: Config,  # noqa: ARG001
    files: tuple[Path, ...],
    output: Path,
    force_node: str | None,
    as_json: bool,
) -> int:
    """Make one database of several.

    Keeps everything and writes to none of the files. The same recording in two files is taken once.
    Databases of the Go implementation are read too. Ids keep their node: gpu-node-01:4821.
    """
    from ingero import units
    from ingero.serve.answers.merging import merge_databases

    if force_node is not None and units.clean(force_node, 128) != force_node:
        raise UsageError("--force-node is no name for a node", hint="Use letters, digits, dots and hyphens.")
    answer = merge_databases(files, output, force_node, _progress)
    if as_json:
        from ingero.serve.cli.output import to_json

        click.echo(to_json(answer))
    else:
        _print(answer)
    return 0


def _progress(text: str) -> None:
    from ingero import units

    if sys.stderr.isatty():
        click.echo(units.clean(text, 300), err=True)


def _print(answer: MergeAnswer) -> None:
    from ingero import units
    from ingero.serve.cli.output import write_columns

    if not answer.changed:
        click.echo(f"{units.clean(answer.output, 300)} has everything already; it was left as it is.")
    rows = [
        {
            "node": node.node,
            "recordings": node.recordings,
            "events": node.events,
            "from": _time(node.from_ns),
            "to": _time(node.to_ns),
        }
        for node in answer.nodes
    ]
    write_columns(["node", "recordings", "events", "from", "to"], rows, sys.stdout)
    for part in answer.already_there if answer.changed else []:
        click.echo(
            f"{units.clean(part.file, 300)}: {units.clean(part.node, 60)} is in another file with all it has"
        )
    for note in answer.clocks:
        if note.what != "unknown":
            click.echo(f"Clock: {_clock(note)}")
    unknown = [note.node for note in answer.clocks if note.what == "unknown"]
    if unknown:
        click.echo(f"Clock: not known to be right: {_listed(unknown)} (recorded by the Go implementation)")
    if answer.doubtful:
        click.echo(f"Two machines seem to have the same name: {_listed(answer.doubtful)}")
    if answer.apart:
        click.echo(f"Not recorded at the same time as any other node: {_listed(answer.apart)}")


def _listed(names: list[str]) -> str:
    from ingero import units

    return ", ".join(units.clean(name, 60) for name in names)


def _time(at_ns: int | None) -> str:
    from datetime import datetime

    if at_ns is None:
        return "-"
    try:
        return datetime.fromtimestamp(at_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{at_ns} ns"


def _clock(note: ClockNote) -> str:
    from ingero import units

    node, offset = units.clean(note.node, 60), units.format_ns(abs(note.offset_ns or 0))
    if note.what == "ahead-of":
        side = "ahead of" if (note.offset_ns or 0) > 0 else "behind"
        return (
            f"{node} seems to be {offset} {side} {units.clean(note.than or '', 60)},"
            f" by {note.count:,} collectives both took part in"
        )
    ahead = f"; its later times are {offset} ahead" if note.offset_ns else ""
    return f"{node} was set {note.count} times while it recorded, first at {_time(note.at_ns)}{ahead}"
