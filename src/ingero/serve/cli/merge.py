"""`ingero merge`: databases of several nodes, or of several times, made into one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingero.errors import UsageError
from ingero.serve.cli.asking import exit_code, fleet_of, of_nodes, say_state
from ingero.serve.cli.options import as_json, configured

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.serve.answers.asked_nodes import Fleet
    from ingero.serve.answers.merging import ClockNote, MergeAnswer

EPILOG = """\b
Examples:
  ingero merge node-01.db node-02.db node-03.db -o cluster.db
  ingero merge node-04.db -o cluster.db             adds to an earlier result
  ingero merge old.db -o new.db --force-node gpu-node-07
  ingero merge --nodes gpu-node-01:8080,gpu-node-02:8080 --since 10m -o cluster.db
  ingero merge node-*.db -o cluster.db --clock-offset gpu-node-02=80ms~2ms
  ingero explain -d cluster.db --node gpu-node-02
"""


@click.command(epilog=EPILOG)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, readable=False), metavar="[FILE...]")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Where to write. An existing file is added to, but only if a merge made it.",
)  # fmt: skip
@click.option(
    "--force-node", metavar="NAME", help="Node name for files that do not say where they were recorded."
)
@click.option(
    "--clock-offset", "offsets", multiple=True, metavar="NODE=D[~D]",
    help="This node's clock is ahead by D, e.g. 80ms or -33ms, give or take ~2ms.",
)  # fmt: skip
@click.option("--since", metavar="D", help="With --nodes: only the last D, e.g. 90s, 5m, 1h.")
@click.option("--from", "start", metavar="T", help="With --nodes: only from this time on.")
@click.option("--to", "end", metavar="T", help="With --nodes: only up to this time.")
@of_nodes
@as_json
@configured
def merge(
    config: Config,
    files: tuple[Path, ...],
    output: Path,
    force_node: str | None,
    offsets: tuple[str, ...],
    as_json: bool,
    **flags: Any,
) -> int:
    """Merge several databases into one.

    Keeps everything and leaves the input files unchanged. A recording that is in two files is
    merged once. Databases of the Go implementation work, too. Ids carry their node:
    gpu-node-01:4821. With --nodes the recordings are fetched, and their times are converted to this
    machine's clock.
    """
    from ingero import units
    from ingero.serve.answers.merging import merge_databases, offset_of

    if force_node is not None and units.clean(force_node, 128) != force_node:
        raise UsageError("--force-node is no name for a node", hint="Use letters, digits, dots and hyphens.")
    fleet = fleet_of(config, flags, local=bool(files))
    given = [offset_of(each) for each in offsets]
    if fleet is not None:
        if given:
            raise UsageError(
                "--clock-offset is for files", hint="Clocks of nodes that are asked are measured."
            )
        return _merge_nodes(fleet, output, force_node, as_json, flags)
    _require_files(files, flags)
    answer = merge_databases(files, output, force_node, _progress, given)
    if as_json:
        from ingero.serve.cli.output import to_json

        click.echo(to_json(answer))
    else:
        _print(answer)
    return 0


def _require_files(files: tuple[Path, ...], flags: dict[str, Any]) -> None:
    if not files:
        raise UsageError("there is nothing to merge", hint="Name files, or nodes with --nodes.")
    flag = next((name for name in ("since", "start", "end") if flags[name] is not None), None)
    if flag is not None:
        flag = {"start": "from", "end": "to"}.get(flag, flag)
        raise UsageError(f"--{flag} is for --nodes; files are taken whole", hint="Leave it out.")


def _merge_nodes(
    fleet: Fleet, output: Path, force_node: str | None, as_json: bool, flags: dict[str, Any]
) -> int:
    from ingero.serve.answers.nodes_recordings import merge_nodes
    from ingero.serve.answers.query import Range
    from ingero.serve.cli.output import to_json

    if force_node is not None:
        raise UsageError("--force-node is for files", hint="Nodes say their name themselves.")
    wanted = Range(flags["since"], flags["start"], flags["end"])
    answer = merge_nodes(fleet, output, wanted, _progress)
    if as_json:
        click.echo(to_json(answer))
    else:
        _print(answer)
        say_state(answer.fleet)
    return exit_code(answer.fleet, flags["strict"])


def _progress(text: str) -> None:
    from ingero import units

    if sys.stderr.isatty():
        click.echo(units.clean(text, 300), err=True)


def _print(answer: MergeAnswer) -> None:
    from ingero import units
    from ingero.serve.cli.output import write_columns

    if not answer.changed:
        click.echo(f"{units.clean(answer.output, 300)} has everything already; it was not changed.")
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
            f"{units.clean(part.file, 300)}: {units.clean(part.node, 60)} is contained in another file"
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
