"""`ingero mcp`: answers for AI assistants, over standard input and output or over HTTPS."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingero.errors import UsageError
from ingero.serve.cli.options import configured, database
from ingero.serve.cli.servers import server_options

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from ingero.config import Config
    from ingero.serve.mcp.source import FleetSource

VARIABLES = ("INGERO_MCP_BEARER_TOKEN",)
EPILOG = """\b
Examples:
  ingero mcp                                    an assistant starts this
  ingero mcp -d demo.db
  ingero mcp --http :8443                       HTTPS, with a token made at the first start
  ingero mcp --http 127.0.0.1:8443 --no-tls     for programs of this user
  ingero mcp --http :8443 --client-ca ca.pem
"""


@click.command(epilog=EPILOG)
@click.option("--http", "address", metavar="ADDR", help="Serve HTTPS here, e.g. :8443.  [stdio]")
@server_options
@database
@configured
def mcp(address: str | None, db: Path | None, config: Config, **flags: Any) -> int:
    """Answer AI assistants over the Model Context Protocol.

    Reads the recording; changes nothing. How to set up an assistant: docs/mcp.md.
    """
    if address is None:
        _refuse_server_flags(flags)
    server = _server(db, config)
    _share_messages()
    if address is None:
        return _stdio(server)
    return _http(server, address, config, flags)


def _refuse_server_flags(flags: dict[str, Any]) -> None:
    chosen = next((name for name, value in flags.items() if value), None)
    if chosen is not None:
        raise UsageError(f"--{chosen.replace('_', '-')} needs --http", hint="Write it like --http :8443.")


def _server(db: Path | None, config: Config) -> MCPServer[Any]:
    from ingero.serve.cli.asking import quiet_fleet

    try:
        from ingero.serve.mcp.server import make_server
        from ingero.serve.mcp.source import AssistantSource
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ingero"):
            raise
        raise UsageError(
            f"the MCP server needs packages that are not installed ({error.name})",
            hint="Install them: pip install 'ingero[mcp]'",
        ) from error
    return make_server(AssistantSource(db, config, lambda: quiet_fleet(config), _collector(config)))


def _collector(config: Config) -> Callable[[], FleetSource | None]:
    """Who is told by the nodes; looked at when somebody asks."""

    def made() -> FleetSource | None:
        from ingero.serve.cli.fleet_asking import TOKENS, CollectorAsked

        where = config.collector.address
        # INGERO_TOKEN is what clients show this server: nobody else's business.
        return CollectorAsked(where, config, variables=TOKENS[:1]) if where else None

    return made


def _share_messages() -> None:
    """What the protocol's own libraries say goes where our messages go."""
    ours, root = logging.getLogger("ingero"), logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for handler in ours.handlers:
        root.addHandler(handler)
    root.setLevel(max(ours.level, logging.WARNING) if ours.level > logging.DEBUG else logging.DEBUG)


def _stdio(server: MCPServer[Any]) -> int:
    import anyio

    if sys.stdin.isatty():
        click.echo("This speaks MCP on standard input: an assistant starts it, see docs/mcp.md.", err=True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what waits for standard input could not be woken
    anyio.run(server.run_stdio_async)
    return 0


def _http(server: MCPServer[Any], address: str, config: Config, flags: dict[str, Any]) -> int:
    from ingero.serve.cli.servers import opened
    from ingero.serve.mcp.http import PATH, http_app
    from ingero.serve.web.guard import Guard
    from ingero.serve.web.server import serve

    found = opened(address, "--http", VARIABLES, config, flags)

    def ready() -> None:
        click.echo(f"ingero mcp: {found.url}{PATH}", err=True)
        for note in found.notes:
            click.echo(f"  {note}", err=True)

    serve(Guard(http_app(server), found.rules), found.sockets, found.tls, ready)
    return 0
