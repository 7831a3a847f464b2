"""From what the user asked for to a server that can be opened: sockets, TLS, and who may come in.

Who may come in: with --client-ca, clients with a certificate; with a token, who has it; with
both, both. With neither, on loopback, programs of the same user; beyond it a token is
made, for a server that everybody could ask is never opened by default.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ingero.errors import UsageError
from ingero.serve.web import certificates, server, sessions
from ingero.serve.web.guard import Rules
from ingero.serve.web.private_files import Folder


@dataclass(frozen=True)
class Wanted:
    """What flags, variables and the configuration say."""

    address: server.Address
    cert: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    token_file: Path | None = None
    allowed_hosts: Sequence[str] = ()
    tls: bool = True
    plain_by: str = "--no-tls"  # how no TLS was asked for


@dataclass(frozen=True)
class Opened:
    """Ready to serve; `notes` are for whoever started it and hold no secret."""

    sockets: list[socket.socket]
    tls: ssl.SSLContext | None
    rules: Rules
    url: str
    notes: list[str]
    token: str | None = field(default=None, repr=False)  # one that counts, for a link to sign in with
    token_made: bool = False  # by us: nobody was told it yet


def open_server(
    wanted: Wanted, folder: Folder, environ: Mapping[str, str], variables: Sequence[str]
) -> Opened:
    """Everything checked and listening; `variables` may hold a token, the first that is set counts."""
    _require_sense(wanted)
    names = server.names_of(wanted.address, wanted.allowed_hosts)
    tls, said = (
        _tls(wanted, folder, names) if wanted.tls else (None, ["no TLS: only this machine can connect"])
    )
    known, source, made = _tokens(wanted, folder, environ, variables)
    certified = [f"clients need a certificate signed by {wanted.client_ca}"] if wanted.client_ca else []
    same_user = known is None and wanted.client_ca is None
    if same_user:
        said.append("no token: only programs of this user can connect")
    sockets = server.listen(wanted.address)
    rules = Rules(
        frozenset(names), sessions.Tokens(known) if known is not None else None, same_user=same_user
    )
    url = server.url_of(wanted.address, sockets, wanted.tls)
    notes = [*said, *certified, *source]
    return Opened(sockets, tls, rules, url, notes, known[0] if known is not None else None, made)


def _require_sense(wanted: Wanted) -> None:
    if (wanted.cert is None) != (wanted.key is None):
        raise UsageError("--cert and --key belong together", hint="Give both, or neither.")
    if wanted.tls:
        return
    if not wanted.address.loopback:
        raise UsageError(
            f"{wanted.plain_by} would send everything readable over the network",
            hint=f"Listen on this machine only, as in 127.0.0.1:{wanted.address.port or 8443},"
            f" or leave {wanted.plain_by} out.",
        )
    if wanted.client_ca is not None or wanted.cert is not None:
        raise UsageError(f"{wanted.plain_by} and certificates exclude each other", hint="Give one of them.")


def _tls(wanted: Wanted, folder: Folder, names: Sequence[str]) -> tuple[ssl.SSLContext, list[str]]:
    if wanted.cert is not None and wanted.key is not None:
        certificate = certificates.given_certificate(wanted.cert, wanted.key)
    else:
        certificate = certificates.own_certificate(folder, names)
    context = certificates.tls_context(certificate, wanted.client_ca)
    if not certificate.made:
        return context, []
    digits = certificates.fingerprint(certificate)
    return context, [f"certificate for clients: {certificate.chain} (SHA-256 {digits})"]


def _tokens(
    wanted: Wanted, folder: Folder, environ: Mapping[str, str], variables: Sequence[str]
) -> tuple[list[str] | None, list[str], bool]:
    """The tokens that count, where they are, and whether we made them; None: none is asked for."""
    given = sessions.from_environment(environ, variables)
    if given:
        return given, ["token: from the environment"], False
    if wanted.token_file is not None:
        return sessions.from_file(wanted.token_file), [f"token: {wanted.token_file}"], False
    if wanted.address.loopback or wanted.client_ca is not None:
        return None, [], False
    path = sessions.own_token(folder)
    return sessions.from_file(path), [f"token: {path}"], True
