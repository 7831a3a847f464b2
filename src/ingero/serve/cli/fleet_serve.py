"""`ingero fleet serve`: the collector, behind the same guard as every server of ours."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingero.errors import UsageError
from ingero.serve.cli.options import configured
from ingero.serve.cli.servers import server_options

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ingero.config import Config
    from ingero.fleet.collector.credentials import Credentials
    from ingero.serve.web.guard import Application
    from ingero.serve.web.opening import Opened

EPILOG = """\b
Examples:
  ingero fleet serve                                      embedded store, HTTPS on port 8443
  ingero fleet serve --listen 127.0.0.1:8443              to try it on one machine; no tokens
  ingero fleet serve --client-ca nodes.pem                nodes show certificates
  ingero fleet serve --store 'clickhouse://fleet@ch:8443/ingero?cluster=main'
"""
CONNECTIONS = 20_000
KEEP_ALIVE_S = 60  # nodes come every ten seconds: one handshake will do


@click.command("serve", epilog=EPILOG)
@click.option("--listen", "address", metavar="ADDR", default=":8443", show_default=True, help="Listen here.")
@click.option(
    "--store",
    "store_url",
    metavar="URL",
    help="chdb:///FOLDER or clickhouse://...  [chdb in your state folder]",
)
@click.option(
    "--keep-days",
    type=click.IntRange(1, 3650),
    default=14,
    show_default=True,
    help="Delete data older than this many days.",
)
@click.option(
    "--node-secret",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Secret that node tokens are derived from.  [generated]",
)
@click.option(
    "--gateway",
    "gateways",
    multiple=True,
    metavar="NAME",
    help="A client with a certificate of this name may report for any node.",
)
@click.option(
    "--node-page",
    metavar="URL",
    default="",
    help="Where nodes' own dashboards are, e.g. https://{node}:8080/; the page links to them.",
)
@click.option(
    "--show-token", is_flag=True, help="Print the token in the link even when the output goes to a log."
)
@server_options
@configured
def fleet_serve(
    address: str,
    store_url: str | None,
    keep_days: int,
    node_secret: Path | None,
    gateways: tuple[str, ...],
    node_page: str,
    show_token: bool,
    config: Config,
    **flags: Any,
) -> int:
    """Collect the health of nodes and show which ones fall behind.

    Nodes send OTLP. They identify themselves with a certificate that has their name (--client-ca),
    or with a token from `ingero fleet token`. People sign in with this server's token.
    """
    from ingero.serve.cli.fleet_options import missing

    try:
        from ingero.fleet.collector.app import make_app  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing("the collector", error) from error
    from ingero.serve.cli.servers import opened
    from ingero.serve.web.server import serve

    client_ca: Path | None = flags.pop("client_ca") or (
        Path(config.server.client_ca) if config.server.client_ca else None
    )
    # Nodes may show certificates; people need not, and are asked for a token instead.
    found = opened(address, "--listen", (), _without_client_ca(config), flags | {"client_ca": None})
    credentials, notes = _credentials(found, client_ca, node_secret, gateways)
    app = _app(store_url, keep_days, credentials, _page_of_nodes(node_page))
    guarded, link = _guarded(app, found, credentials)
    if found.token is not None and (show_token or (found.token_made and os.isatty(2))):
        link += f"#token={found.token}"  # logs are read by others, and a token that was given is known

    def ready() -> None:
        click.echo(f"ingero fleet: {link}", err=True)
        for note in (*found.notes, *notes):
            click.echo(f"  {note}", err=True)

    serve(guarded, found.sockets, found.tls, ready, connections=CONNECTIONS, keep_alive_s=KEEP_ALIVE_S)
    return 0


def _without_client_ca(config: Config) -> Config:
    import msgspec

    return msgspec.structs.replace(config, server=msgspec.structs.replace(config.server, client_ca=None))


def _credentials(
    found: Opened, client_ca: Path | None, node_secret: Path | None, gateways: tuple[str, ...]
) -> tuple[Credentials, list[str]]:
    from ingero.fleet.collector.credentials import Credentials
    from ingero.serve.cli.fleet_token import node_secret_of
    from ingero.serve.web.certificates import ask_clients

    if client_ca is not None:
        if found.tls is None:
            raise UsageError("--no-tls and --client-ca exclude each other", hint="Give one of them.")
        ask_clients(found.tls, client_ca)
    elif gateways:
        raise UsageError("--gateway needs --client-ca", hint="A token for all nodes: ingero fleet token '*'")
    open_to_user = found.rules.same_user and node_secret is None and client_ca is None
    secret = (
        None
        if open_to_user or (client_ca is not None and node_secret is None)
        else node_secret_of(node_secret)
    )
    notes = [f"nodes show a certificate signed by {client_ca}"] if client_ca is not None else []
    if secret is not None:
        notes.append("nodes show a token: ingero fleet token NODE")
    if open_to_user:
        notes.append("every program of this user can report for any node")
    return Credentials(secret, client_ca is not None, gateways), notes


def _page_of_nodes(address: str) -> str:
    """Nodes do not say where they are: whoever could would send people anywhere."""
    from urllib.parse import urlsplit

    if address and (urlsplit(address).scheme not in ("http", "https") or "{node}" not in address):
        raise UsageError(
            f"--node-page: not the address of nodes' pages: {address!r}",
            hint="Write it with {node}, e.g. https://{node}:8080/.",
        )
    return address


def _app(store_url: str | None, keep_days: int, credentials: Credentials, node_page: str) -> Starlette:
    from ingero.fleet.collector.app import make_app
    from ingero.fleet.collector.commit import Committer
    from ingero.fleet.collector.store import Address, Store, parse
    from ingero.fleet.collector.watch import Watch
    from ingero.serve.answers.places import state_folder
    from ingero.serve.dashboard.pages import files, page

    where = parse(store_url) if store_url else Address(state_folder() / "fleet")
    store = Store(where, keep_days)
    static = files()
    pages = {
        **{f"/{name}": page(static, name) for name in static},
        **dict.fromkeys(("/", "/fleet"), page(static, "fleet.html")),
        "/login": page(static, "login.html"),
    }
    return make_app(store, Committer(store), Watch(store), credentials, pages, node_page)


def _guarded(app: Application, found: Opened, credentials: Credentials) -> tuple[Application, str]:
    """The application behind its guard, and the link to open."""
    from ingero.fleet.collector.app import BODY_BYTES
    from ingero.fleet.collector.receiving import PATHS
    from ingero.serve.dashboard.pages import HEADERS, LOGIN_FILES
    from ingero.serve.web.guard import Guard
    from ingero.serve.web.login import LOGIN, SESSION, Login
    from ingero.serve.web.sessions import Sessions

    # Who may send is decided batch by batch, where the names are known.
    sending = frozenset(PATHS) if credentials.required else frozenset()
    rules = replace(found.rules, headers=HEADERS, max_body_bytes=BODY_BYTES, open_paths=sending)
    if rules.tokens is None:
        return Guard(app, rules), f"{found.url}/"
    secure = found.tls is not None
    port = found.sockets[0].getsockname()[1]
    sessions = Sessions(rules.tokens, f"{'__Host-' if secure else ''}ingero-{port}")
    rules = replace(rules, sessions=sessions, open_paths=sending | {*LOGIN_FILES, SESSION}, login=LOGIN)
    return Guard(Login(app, sessions, secure), rules), f"{found.url}{LOGIN}"
