"""`ingero fleet token`: what a node shows its collector, and the secret all nodes' tokens are made from."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingero.errors import UsageError
from ingero.serve.cli.options import configured

if TYPE_CHECKING:
    from ingero.config import Config


# `ingero fleet token`: what a node shows its collector.

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

    click.echo(token_for(node_secret_of(node_secret), node))
    return 0


# The secret that nodes' tokens are made from: the user's, or one made at the first start.


NAME = "node-secret"


def node_secret_of(named: Path | None) -> bytes:
    from ingero.serve.answers.places import owner_of_new_files, state_folder
    from ingero.serve.web.private_files import Folder, read_private, write_whole

    if named is None:
        folder = Folder(state_folder() / "server", owner_of_new_files())
        named = folder.path / NAME
        if not named.exists():
            write_whole(folder, NAME, f"{secrets.token_urlsafe(32)}\n".encode())
    secret = read_private(named, "node secret").strip()
    if len(secret) < 16:
        raise UsageError(
            f"the node secret in {named} is too easy to guess",
            hint="Use at least 16 letters and digits, for example from: openssl rand -hex 32",
        )
    return secret
