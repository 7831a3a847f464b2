"""Options that commands with a server share, and what they lead to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingero.serve.cli.options import Function

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.serve.web.opening import Opened

_FILE = click.Path(path_type=Path, readable=False)
TOKEN = "INGERO_TOKEN"
USUAL_PORTS = {"--addr": 8080, "--http": 8443, "--prometheus": 9090, "--listen": 8443}


def server_options(function: Function) -> Function:
    """Who may connect, and how."""
    for option in reversed(
        (
            click.option(
                "--cert",
                "--tls-cert",
                type=_FILE,
                metavar="FILE",
                help="Certificate, PEM.  [generated, self-signed]",
            ),
            click.option("--key", "--tls-key", type=_FILE, metavar="FILE", help="Its private key (PEM)."),
            click.option(
                "--client-ca",
                type=_FILE,
                metavar="FILE",
                help="Accept only clients with a certificate signed by this CA.",
            ),
            click.option(
                "--token-file",
                type=_FILE,
                metavar="FILE",
                help="File with bearer tokens, one per line. Default: INGERO_TOKEN.",
            ),
            click.option(
                "--allowed-host",
                multiple=True,
                metavar="NAME",
                help="Another host name of this server; repeatable.",
            ),
            click.option("--no-tls", is_flag=True, help="Plain HTTP; on this machine only."),
        )
    ):
        function = option(function)
    return function


def opened(
    address: str, flag: str, variables: tuple[str, ...], config: Config, flags: dict[str, Any]
) -> Opened:
    """The server these options ask for, listening."""
    from ingero.serve.answers.places import owner_of_new_files, state_folder
    from ingero.serve.web.opening import Wanted, open_server
    from ingero.serve.web.private_files import Folder
    from ingero.serve.web.server import parse_address

    known = config.server
    wanted = Wanted(
        address=parse_address(address, flag, USUAL_PORTS[flag]),
        cert=flags["cert"] or _path(known.cert),
        key=flags["key"] or _path(known.key),
        client_ca=flags["client_ca"] or _path(known.client_ca),
        token_file=flags["token_file"] or _path(known.token_file),
        allowed_hosts=(*known.allowed_hosts, *flags["allowed_host"]),
        tls=not flags["no_tls"],
        plain_by=flags.get("plain_by", "--no-tls"),
    )
    folder = Folder(state_folder() / "server", owner_of_new_files())
    return open_server(wanted, folder, os.environ, (*variables, TOKEN))


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None
