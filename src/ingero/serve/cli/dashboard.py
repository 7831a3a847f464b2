"""`ingero dashboard`: the recording in a browser, and the API behind it, over HTTPS."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingero.errors import UsageError
from ingero.serve.cli.options import configured, database
from ingero.serve.cli.servers import server_options

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.serve.web.guard import Application
    from ingero.serve.web.opening import Opened

EPILOG = """\b
Examples:
  ingero dashboard                              HTTPS on port 8080, with a token made at the first start
  ingero dashboard -d demo.db
  ingero dashboard --addr 127.0.0.1:8080        for this user on this machine; no token
  ingero dashboard --allowed-host gpu.example   also reachable by this name
  ingero dashboard --client-ca ca.pem           only for browsers with a certificate
"""


@click.command(epilog=EPILOG)
@click.option("--addr", "address", metavar="ADDR", default=":8080", show_default=True, help="Listen here.")
@click.option(
    "--show-token", is_flag=True, help="Print the token in the link even when the output goes to a log."
)
@server_options
@database
@configured
def dashboard(address: str, show_token: bool, db: Path | None, config: Config, **flags: Any) -> int:
    """Show a recording in a browser, live while it grows.

    Reads the recording; changes nothing. Pages and API: docs/dashboard.md.
    """
    from ingero.serve.answers.places import database as recorded
    from ingero.serve.answers.places import written_ns
    from ingero.serve.cli.next_steps import hint
    from ingero.serve.cli.servers import opened

    app, stopping = _app(db, config)
    recording = recorded(db)
    found = opened(address, "--addr", (), config, flags)
    from ingero.serve.web.server import serve

    guarded, link = _guarded(app, found)
    if found.token is not None and (show_token or (found.token_made and sys.stderr.isatty())):
        link += f"#token={found.token}"  # logs are read by others, and a token that was given is known

    def ready() -> None:
        click.echo(f"ingero dashboard: {link}", err=True)
        if not written_ns(recording):
            click.echo(
                f"  no recording at {recording} yet; the pages will show it once it is there", err=True
            )
        for note in found.notes:
            click.echo(f"  {note}", err=True)
        if written_ns(recording):
            hint(db, "explain -v", "every proof, in another terminal; Ctrl-C ends the dashboard")

    serve(guarded, found.sockets, found.tls, ready, stopping)
    return 0


def _app(db: Path | None, config: Config) -> tuple[Application, Callable[[], None]]:
    from ingero.serve.cli.asking import quiet_fleet

    try:
        from ingero.serve.dashboard.app import make_app
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ingero"):
            raise
        raise UsageError(
            f"the dashboard needs packages that are not installed ({error.name})",
            hint="Install them: pip install 'ingero[web]'",
        ) from error
    return make_app(db, config.cost, lambda: quiet_fleet(config), _fleet_page(config))


def _fleet_page(config: Config) -> str:
    """Where the collector shows all nodes. People sign in there: only with TLS are they sent."""
    from ingero.serve.metrics.otlp_destination import parse

    if not config.collector.address:
        return ""
    to = parse(config.collector.address, "collector.address")
    return f"{to.url}/fleet" if to.secure else ""


def _guarded(app: Application, found: Opened) -> tuple[Application, str]:
    """The application behind its guard, and the link to open."""
    from ingero.serve.dashboard.app import LIVE
    from ingero.serve.dashboard.pages import HEADERS, LOGIN_FILES
    from ingero.serve.web.guard import Guard
    from ingero.serve.web.login import LOGIN, SESSION, Login
    from ingero.serve.web.sessions import Sessions

    rules = replace(found.rules, streams=frozenset({LIVE}), headers=HEADERS)
    if rules.tokens is None:
        return Guard(app, rules), f"{found.url}/"
    secure = found.tls is not None
    # Browsers do not keep cookies of two ports apart; the prefix keeps other hosts from setting ours.
    port = found.sockets[0].getsockname()[1]
    sessions = Sessions(rules.tokens, f"{'__Host-' if secure else ''}ingero-{port}")
    rules = replace(rules, sessions=sessions, open_paths=frozenset({*LOGIN_FILES, SESSION}), login=LOGIN)
    return Guard(Login(app, sessions, secure), rules), f"{found.url}{LOGIN}"
