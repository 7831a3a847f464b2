"""--nodes and what belongs to it: options that commands which ask other nodes share."""

from __future__ import annotations

import os
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingero.errors import UsageError
from ingero.serve.cli.options import Function

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.serve.answers.asked_nodes import Fleet, FleetState

PARTIAL = 4  # exit code with --strict
TOKENS = ("INGERO_FLEET_TOKEN", "INGERO_TOKEN")
_FILE = click.Path(path_type=Path, readable=False)
_OPTIONS = (
    click.option(
        "--nodes", multiple=True, metavar="LIST",
        help="Ask these nodes: HOST:PORT,... or @FILE. Default: fleet.nodes of the configuration.",
    ),
    click.option("--local", is_flag=True, help="Use this machine's recording even if fleet.nodes is set."),
    click.option("--ca-cert", type=_FILE, metavar="FILE", help="CA of the nodes' certificates (PEM)."),
    click.option("--client-cert", type=_FILE, metavar="FILE", help="Client certificate to show (PEM)."),
    click.option("--client-key", type=_FILE, metavar="FILE", help="Its private key (PEM)."),
    click.option("--token-file", type=_FILE, metavar="FILE", help="Token to send. Default: INGERO_TOKEN."),
    click.option("--no-tls", is_flag=True, help="Connect without TLS; nodes allow this on loopback only."),
    click.option("--node-timeout", metavar="D", help="How long to wait for each node.  [30s]"),
    click.option("--strict", is_flag=True, help="Exit with 4 when a node did not answer."),
)  # fmt: skip
ONLY_WITH_NODES = ("ca_cert", "client_cert", "client_key", "token_file", "no_tls", "node_timeout", "strict")


def of_nodes(function: Function) -> Function:
    """The options."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def fleet_of(config: Config, flags: dict[str, Any], local: bool = False) -> Fleet | None:
    """Whom the flags, else the configuration, want asked; None: the recording here.

    `local`: something was named that is here, such as a database.
    """
    given = flags["nodes"]
    if given and local:
        raise UsageError("--nodes and --db exclude each other", hint="Give one of them.")
    if given and flags["local"]:
        raise UsageError("--nodes and --local exclude each other", hint="Give one of them.")
    if not given and (flags["local"] or local or os.environ.get("INGERO_DB") or not config.fleet.nodes):
        flag = next((name for name in ONLY_WITH_NODES if flags[name]), None)
        if flag is not None:
            raise UsageError(f"--{flag.replace('_', '-')} is for --nodes", hint="Name the nodes to ask.")
        return None
    return configured_fleet(config, given or config.fleet.nodes, flags)


def configured_fleet(config: Config, names: Any, flags: dict[str, Any] | None = None) -> Fleet:
    """Also without flags: what a server asks with."""
    from ingero import units
    from ingero.serve.answers.asked_nodes import Fleet, Limits, Trust, parse_nodes

    flags = flags or dict.fromkeys(ONLY_WITH_NODES)
    known = config.fleet
    seconds = units.parse_duration(str(flags["node_timeout"] or known.timeout)) / units.SECOND
    most = units.parse_size(str(known.max_answer))
    context = _tls(
        flags["ca_cert"] or _path(known.ca_cert),
        flags["client_cert"] or _path(known.client_cert),
        flags["client_key"] or _path(known.client_key),
    )
    return Fleet(
        nodes=parse_nodes(names, plain=bool(flags["no_tls"])),
        trust=Trust(context, _token(flags["token_file"], _path(known.token_file))),
        limits=Limits(seconds=seconds, at_once=known.at_once, answer_bytes=most, all_bytes=8 * most),
        progress=_progress,
        warn_ns=units.parse_duration(str(known.clock_warning)),
    )


def quiet_fleet(config: Config) -> Fleet | None:
    """For servers, which ask on behalf of others: the configured nodes, None where there are none."""
    from dataclasses import replace

    if not config.fleet.nodes:
        return None
    return replace(configured_fleet(config, config.fleet.nodes), progress=lambda _, __: None)


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None


def _tls(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    from ingero.serve.web.private_files import read_private, read_public

    if key is not None and cert is None:
        raise UsageError("--client-key needs --client-cert", hint="Give both.")
    try:
        trusted = read_public(ca, "authority").decode("ascii") if ca is not None else None
        context = ssl.create_default_context(cadata=trusted)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if cert is not None:
            read_public(cert, "certificate")
            read_private(key or cert, "key")
            context.load_cert_chain(cert, key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise UsageError(
            f"cannot use the certificates for --nodes: {getattr(error, 'reason', None) or error}",
            hint="They must be PEM files, fit each other, and the key must have no password.",
        ) from error
    return context


def _no_password() -> str:
    raise ssl.SSLError("the key has a password")  # asked for on the terminal otherwise


def _token(named: Path | None, configured: Path | None) -> str | None:
    from ingero.serve.web.sessions import from_environment, from_file

    if named is not None:
        return from_file(named)[0]
    given = from_environment(os.environ, TOKENS)
    if given:
        return given[0]
    return from_file(configured)[0] if configured is not None else None


def _progress(through: int, count: int) -> None:
    """One line that is written over, for somebody who looks."""
    if sys.stderr.isatty():
        end = "\r\x1b[K" if through == count else "\r"
        text = "" if through == count else f"asking {count} nodes, {through} answered"
        click.echo(f"{text}{end}", err=True, nl=False)


def say_state(state: FleetState) -> None:
    """Who did not answer, and what to know before comparing; on standard error."""
    from ingero import units

    for each in state.nodes:
        if each.answered:
            continue
        hint = f" {each.hint}" if each.hint else ""
        known = f" [{', '.join(each.nodes)}]" if 0 < len(each.nodes) < 4 else ""
        text = f"no answer from {each.address}{known} ({each.problem}): {each.why}.{hint}"
        if each.problem == "same":
            text = f"{each.address}: {each.why}; counted once."
        click.echo(units.clean(text, 900), err=True)
    for note in state.notes:
        click.echo(f"Note: {units.clean(note, 600)}.", err=True)


def exit_code(state: FleetState, strict: bool, otherwise: int = 0) -> int:
    return PARTIAL if strict and state.partial else otherwise


def nodes_word(state: FleetState) -> str:
    """`from 4 node(s)`, as scripts know it."""
    missing = f" of {state.asked}" if state.partial else ""
    return f"from {state.answered}{missing} node(s)"
