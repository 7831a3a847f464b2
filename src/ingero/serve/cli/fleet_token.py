"""`ingero fleet token`: what a node shows its collector."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingero.serve.cli.options import configured

if TYPE_CHECKING:
    from ingero.config import Config

EPILOG = """\b
Examples:
  ingero fleet token gpu-node-01         for that node only
  ingero fleet token west/gpu-node-01    for that node in that cluster only
  ingero fleet token 'rack7-*'           for an OpenTelemetry Collector that speaks for a rack
"""


@click.command("token", epilog=EPILOG)
@click.argument("node")
@click.option(
    "--node-secret",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The collector's secret.  [generated]",
)
@configured
def fleet_token(node: str, node_secret: Path | None, config: Config) -> int:  # noqa: ARG001
    """Print the token for a node.

    Made from the collector's secret, so run it as the user the collector runs as. The node keeps it in
    INGERO_NODE_TOKEN or the file that collector.token_file names.
    """
    from ingero.fleet.collector.credentials import token_for
    from ingero.serve.cli.fleet_secret import node_secret_of

    click.echo(token_for(node_secret_of(node_secret), node))
    return 0
