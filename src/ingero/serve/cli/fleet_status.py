"""`ingero fleet status`: what a collector says of the fleet, worst first."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingero.errors import UsageError
from ingero.serve.cli.options import as_json, configured

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.model.fleet import FleetStatus, NodeStatus

EPILOG = """\b
Examples:
  ingero fleet status --collector https://collector:8443
  ingero fleet status --finding cpu-contention --json
  ingero fleet status --cluster a100 --state straggling
"""
COLUMNS = ("State", "Node", "Cluster", "Jobs", "GPU busy", "GPU memory", "Pace", "Why")
NUMBERS = ("Jobs", "GPU busy", "GPU memory", "Pace")
STYLES = {
    "silent": "bold red", "critical": "bold red", "straggling": "bold yellow", "high": "yellow",
    "medium": "yellow", "low": "cyan", "fine": "green",
}  # fmt: skip


@click.command("status", epilog=EPILOG)
@click.option("--collector", "where", metavar="URL", help="The collector.  [collector.address]")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File with the token. Default: INGERO_TOKEN.",
)
@click.option("--ca", type=click.Path(path_type=Path), metavar="FILE", help="CA of its certificate (PEM).")
@click.option("--cluster", metavar="NAME", help="Only this cluster.")
@click.option("--node", metavar="NAME", help="Only this node.")
@click.option("--job", metavar="NAME", help="Only nodes with this job.")
@click.option("--namespace", metavar="NAME", help="Only nodes with this namespace.")
@click.option("--finding", metavar="KIND", help="Only nodes with this finding.")
@click.option("--state", metavar="STATE", help="Only nodes in this state, e.g. straggling.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    default=40,
    show_default=True,
    help="Maximum number of nodes to list.",
)
@click.option("--exit-code", is_flag=True, help="Exit with 3 when a node is not fine.")
@as_json
@configured
def fleet_status(
    where: str | None,
    token_file: Path | None,
    ca: Path | None,
    as_json: bool,
    exit_code: bool,
    config: Config,
    **filters: Any,
) -> int:
    """Show the health of the fleet, as a collector sees it.

    States, worst first: silent, critical, straggling, high, medium, low, fine.
    """
    from ingero.serve.cli.fleet_asking import CollectorAsked
    from ingero.serve.cli.output import to_json

    where = where or config.collector.address
    if not where:
        raise UsageError("which collector?", hint="Name it: --collector https://collector:8443")
    found = CollectorAsked(where, config, token_file, ca).status(filters)
    if as_json:
        click.echo(to_json(found))
    else:
        _print(found)
    return 3 if exit_code and found.states.get("fine", 0) < found.total else 0


def _print(found: FleetStatus) -> None:
    from rich.table import Table
    from rich.text import Text

    from ingero import units
    from ingero.serve.cli import tables

    out = tables.console(sys.stdout)
    counts = ", ".join(f"{count} {state}" for state, count in found.states.items() if count)
    nodes = "node" if found.total == 1 else "nodes"
    out.print(Text(f"{found.total} {nodes}: {counts or 'no node has reported yet'}"))
    if not found.nodes:
        return
    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in NUMBERS else "left", overflow="fold")
    for each in found.nodes:
        jobs = "-" if each.state == "silent" else str(each.jobs)
        table.add_row(
            Text(each.state, STYLES[each.state]), Text(units.clean(each.node)),
            Text(units.clean(each.cluster)),
            jobs, _share(each.gpu_busy_share), _share(each.memory_share), _share(each.pace_share),
            Text(units.clean(why(each), 300)),
        )  # fmt: skip
    out.print(table)
    if found.left_out:
        out.print(Text(f"{found.left_out} more; --limit shows them"))


def _share(value: float | None) -> str:
    from ingero.units import format_share

    return "-" if value is None else format_share(value)


def why(status: NodeStatus) -> str:
    """The worst of it in one line."""
    from ingero.units import format_clock, format_ns

    if status.other_time_ns is not None:
        told = format_clock(status.other_time_ns)
        return f"its reports are of {told}: its clock is wrong, or it now sends reports that waited"
    if status.state == "silent":
        return f"no report for {format_ns(max(0, time.time_ns() - status.last_seen_ns))}"
    if status.straggling and status.state == "straggling":
        return status.straggling[0].text
    if status.findings:
        worst = status.findings[0]
        return f"{worst.kind}: {worst.title}"
    return ""
