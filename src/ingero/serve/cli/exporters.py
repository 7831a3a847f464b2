"""--prometheus, --otlp and --fleet: what they lead to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingero.errors import UsageError
from ingero.serve.cli.options import Function

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.model.live import Surface
    from ingero.serve.metrics.otlp_destination import Destination
    from ingero.serve.metrics.surface import Exporter

NO_FLAGS: dict[str, Any] = {
    "cert": None, "key": None, "client_ca": None, "token_file": None, "allowed_host": (), "no_tls": False,
}  # fmt: skip
PLAIN = "http://"


def exporting(function: Function) -> Function:
    """The options."""
    function = click.option(
        "--fleet", metavar="URL", help="Report this node's health to this collector; see docs/fleet.md."
    )(function)
    function = click.option(
        "--otlp", metavar="HOST:PORT|URL", help="Send metrics and findings to this OTLP receiver."
    )(function)
    return click.option(
        "--prometheus",
        metavar="ADDR",
        help="Serve Prometheus metrics here, e.g. :9090; over HTTPS, with a token that it prints."
        " See docs/metrics.md.",
    )(function)


def exported(
    surface: Surface, config: Config, prometheus: str | None, otlp: str | None, fleet: str | None = None
) -> Surface:
    """The surface with the exporters asked for; the same one where there are none."""
    exporters: list[Exporter] = []
    where = otlp or config.otlp.endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    address = prometheus or config.prometheus.address
    if where:  # first: nothing listens yet when it is wrong
        exporters.append(_otlp(where, config))
    if collector := fleet or config.collector.address:
        exporters.append(_fleet(collector, config))
    if address:
        exporters.append(_prometheus(address, config))
    if not exporters:
        return surface
    from ingero import units
    from ingero.model.metrics import SeriesLimits
    from ingero.serve.answers.cost import prices_of
    from ingero.serve.metrics.surface import Exported

    known = config.metrics
    return Exported(
        surface,
        exporters,
        SeriesLimits(known.processes, known.operations, units.parse_duration(str(known.keep))),
        prices_of(config.cost),
    )


def _missing(extra: str, error: ModuleNotFoundError) -> UsageError:
    if (error.name or "").startswith("ingero"):
        raise error
    return UsageError(
        f"--{extra} needs packages that are not installed ({error.name})",
        hint=f"Install them: pip install 'ingero[{extra}]'",
    )


def _prometheus(address: str, config: Config) -> Exporter:
    try:
        from ingero.serve.metrics.prometheus import PrometheusExporter
        from ingero.serve.metrics.scraping import PATH
    except ModuleNotFoundError as error:
        raise _missing("prometheus", error) from error
    from ingero.serve.cli.servers import opened

    plain = address.startswith(PLAIN)
    flags = NO_FLAGS | {"no_tls": plain, "plain_by": PLAIN}
    found = opened(
        address.removeprefix(PLAIN).rstrip("/") if plain else address, "--prometheus", (), config, flags
    )
    click.echo(f"metrics: {found.url}{PATH}", err=True)
    for note in found.notes:
        click.echo(f"  {note}", err=True)
    return PrometheusExporter(found)


def _otlp(where: str, config: Config) -> Exporter:
    try:
        from ingero.serve.metrics.otlp import OtlpExporter, SendingPace
    except ModuleNotFoundError as error:
        raise _missing("otlp", error) from error
    from ingero import units

    interval_s = units.parse_duration(str(config.otlp.interval)) / 1e9
    longest_s = units.parse_duration(str(config.otlp.longest_pause)) / 1e9
    pace = SendingPace(interval_s, first_pause_s=min(0.5, longest_s), longest_pause_s=longest_s)
    return OtlpExporter(_destination(where, config), pace)


def _fleet(where: str, config: Config) -> Exporter:
    from ingero.serve.cli.fleet_options import sender

    made = sender(where, "--fleet", config)
    from ingero.serve.metrics.fleet import FleetExporter

    return FleetExporter(made)


def _destination(where: str, config: Config) -> Destination:
    from dataclasses import replace

    from ingero import units
    from ingero.serve.metrics.otlp_destination import parse, read_headers, refuse_leak

    known, environ = config.otlp, os.environ
    protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") if known.protocol is None else known.protocol
    protocol = (protocol or "http").removesuffix("/protobuf")
    found = replace(
        parse(where, "--otlp", protocol),
        headers=read_headers(environ, _path(known.headers_file)),
        timeout_s=units.parse_duration(str(known.timeout)) / 1e9,
        packed=environ.get("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip") == "gzip",
        ca=_path(known.ca or environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE")),
        client_cert=_path(known.client_cert or environ.get("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE")),
        client_key=_path(known.client_key or environ.get("OTEL_EXPORTER_OTLP_CLIENT_KEY")),
    )
    refuse_leak(found)
    return found


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None
