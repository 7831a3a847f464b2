"""Where OTLP data goes: a flag or key, and the variables every OpenTelemetry program honours.

Secrets come from OTEL_EXPORTER_OTLP_HEADERS or a private file, and never leave the machine
readable. `HOST:PORT` means HTTPS, on this machine HTTP; a URL means what it says.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from ingero import units
from ingero.errors import UsageError
from ingero.serve.web.private_files import read_private, read_public

SIGNALS = ("logs", "traces", "metrics")
HTTP, GRPC = "http", "grpc"
PORTS = {HTTP: 4318, GRPC: 4317}
ENDPOINT, HEADERS = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"


@dataclass(frozen=True)
class Destination:
    """A receiver."""

    host: str
    port: int
    secure: bool
    protocol: str = HTTP
    path: str = ""  # before /v1/metrics
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = 10.0
    packed: bool = True
    ca: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.path}"

    def tls(self) -> ssl.SSLContext | None:
        """Who it must be, and who we are."""
        if not self.secure:
            return None
        try:
            context = ssl.create_default_context()
            if self.ca is not None:
                context = ssl.create_default_context(cadata=read_public(self.ca, "authority").decode("ascii"))
            if self.client_cert is not None:
                context.load_cert_chain(self.client_cert, self.client_key)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise UsageError(
                f"cannot use the certificates for {self.url}: {getattr(error, 'reason', None) or error}",
                hint="They must be PEM files, and the key must fit its certificate.",
            ) from error
        return context


def parse(text: str, flag: str, protocol: str = HTTP) -> Destination:
    """`collector:4318`, `http://127.0.0.1:4318`, `https://collector/otlp`, `[::1]:4318`."""
    if protocol not in PORTS:
        raise UsageError(f"no such OTLP protocol: {units.clean(protocol, 40)!r}", hint="Use http or grpc.")
    found = _split(text, flag)
    host = found.hostname or ""
    if found.username is not None or found.password is not None:
        raise UsageError(
            f"{flag}: a password in an address can be read by everybody on this machine",
            hint=f"Put it into {HEADERS}, or a file named by otlp.headers_file.",
        )
    secure = found.scheme == "https" if found.scheme else not is_loopback(host)
    port = found.port or PORTS[protocol]
    return Destination(host, port, secure, protocol, found.path.rstrip("/"))


def _split(text: str, flag: str) -> SplitResult:
    wrong = UsageError(
        f"{flag}: not an address: {units.clean(text, 80)!r}",
        hint="Write collector:4318, http://127.0.0.1:4318 or https://collector.example/otlp.",
    )
    try:
        found = urlsplit(text if "://" in text else f"//{text}")
        port = found.port  # raises where it is no number
    except ValueError:
        raise wrong from None
    plain = text.isascii() and text.isprintable() and " " not in text
    if not plain or not found.hostname or port == 0 or found.query or found.fragment:
        raise wrong
    if found.scheme not in ("", "http", "https"):
        raise wrong
    return found


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_headers(environ: Mapping[str, str], file: Path | None) -> dict[str, str]:
    """From the variable (`name=value,...`, escaped as in a URL) and a private file (`name: value` lines)."""
    found: dict[str, str] = {}
    for pair in environ.get(HEADERS, "").split(","):
        name, equals, value = pair.partition("=")
        if equals:
            found[_token(name, HEADERS)] = _value(unquote(value.strip()), HEADERS)
    if file is not None:
        for line in read_private(file, "headers file").decode("utf-8", "replace").splitlines():
            name, colon, value = line.partition(":")
            if colon and not line.startswith("#"):
                found[_token(name, str(file))] = _value(value.strip(), str(file))
    return found


def _token(name: str, where: str) -> str:
    name = name.strip().lower()
    if not name or not all(letter.isalnum() or letter in "-_." for letter in name) or not name.isascii():
        raise UsageError(
            f"{where}: not the name of a header: {units.clean(name, 40)!r}", hint="As in api-key."
        )
    return name


def _value(value: str, where: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise UsageError(f"{where}: a header's value is not plain text", hint="Check how it was written.")
    return value


def refuse_leak(destination: Destination) -> None:
    """A secret does not travel readable."""
    if destination.headers and not destination.secure and not is_loopback(destination.host):
        raise UsageError(
            f"headers for OTLP would be sent readable to {destination.host}",
            hint=f"Use https://{destination.host}:{destination.port}, or unset {HEADERS}.",
        )
