"""What the commands around a collector share: where it is, and who we are to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ingero.errors import UsageError

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.serve.metrics.fleet import FleetSender
    from ingero.serve.metrics.otlp_destination import Destination

TOKEN = (
    "INGERO_NODE_TOKEN"  # what is shown to other nodes (INGERO_FLEET_TOKEN) is none of a collector's business
)
SECRET_FILE = "node-secret"
ROOTS_SPOOL = Path("/var/lib/ingero/fleet-spool")


def missing(what: str, error: ModuleNotFoundError, extra: str = "fleet") -> UsageError:
    """A package of the extra is not there; a module of ours that is not is a bug."""
    if (error.name or "").startswith("ingero"):
        raise error
    return UsageError(
        f"{what} needs packages that are not installed ({error.name})",
        hint=f"Install them: pip install 'ingero[{extra}]'",
    )


def collector(where: str, flag: str, config: Config) -> Destination:
    """The collector with what we show it; a token does not travel readable."""
    from dataclasses import replace

    from ingero.serve.metrics.otlp_destination import parse, refuse_leak
    from ingero.serve.web.private_files import read_private

    known = config.collector
    token = os.environ.get(TOKEN, "").strip()
    if not token and known.token_file:
        token = (
            read_private(Path(known.token_file).expanduser(), "token file").decode("utf-8", "replace").strip()
        )
    found = parse(where, flag)
    if ":" not in where.partition("://")[2].rpartition("]")[2] and "://" in where:
        found = replace(found, port=8443)
    found = replace(
        found,
        headers={"authorization": f"Bearer {token}"} if token else {},
        ca=_path(known.ca_cert),
        client_cert=_path(known.client_cert),
        client_key=_path(known.client_key),
    )
    refuse_leak(found)
    return found


def sender(where: str, flag: str, config: Config) -> FleetSender:
    """What tells the collector."""
    try:
        from ingero.serve.metrics.fleet import FleetSender
    except ModuleNotFoundError as error:
        raise missing(flag, error, "otlp") from error
    to = collector(where, flag, config)
    return FleetSender(to, _spool(config, to), config.collector.cluster or "")


def _spool(config: Config, to: Destination) -> Path:
    """One folder for each collector: what is meant for one is not sent to another."""
    from ingero.serve.answers.places import state_folder

    named = _path(config.collector.spool)
    if named is None:
        named = ROOTS_SPOOL if os.geteuid() == 0 else state_folder() / "fleet-spool"
    return named / f"{to.host.replace(':', '_')}_{to.port}"


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None
