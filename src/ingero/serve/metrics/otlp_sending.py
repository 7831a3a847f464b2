"""One OTLP request: sent, refused, or to be tried again. Over HTTP, or over gRPC where that is installed."""

from __future__ import annotations

import gzip
import http.client
import ssl
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ingero import __version__, units
from ingero.errors import UsageError
from ingero.model.fleet import ADVICE_HEADER
from ingero.serve.metrics.otlp_destination import GRPC, Destination

AGAIN = {408, 429, 502, 503, 504}
LONGEST_WAIT_S = 300.0
ANSWER_BYTES = 64 << 10
AGENT = f"ingero/{__version__}"


@dataclass(frozen=True)
class Outcome:
    """`again` means that the same request may be taken later; `after_s` says when, where the receiver did."""

    accepted: bool
    again: bool = False
    after_s: float | None = None
    why: str = ""
    status: int | None = None  # of HTTP; None: no answer came
    advice: str = ""  # what a fleet's collector thinks of us, as it said it


class Sender(Protocol):
    def send(self, signal: str, body: bytes, timeout_s: float) -> Outcome: ...

    def close(self) -> None: ...


def sender(destination: Destination) -> Sender:
    return GrpcSender(destination) if destination.protocol == GRPC else HttpSender(destination)


class HttpSender:
    """Keeps one connection while it works."""

    def __init__(self, destination: Destination) -> None:
        self._to = destination
        self._tls = destination.tls()
        self._connection: http.client.HTTPConnection | None = None

    def send(self, signal: str, body: bytes, timeout_s: float) -> Outcome:
        headers = {
            "content-type": "application/x-protobuf",
            "user-agent": AGENT,
            **({"content-encoding": "gzip"} if self._to.packed else {}),
            **self._to.headers,
        }
        packed = gzip.compress(body, 1) if self._to.packed else body
        try:
            connection = self._open(timeout_s)
            connection.request("POST", f"{self._to.path}/v1/{signal}", packed, headers)
            answer = connection.getresponse()
            said = answer.read(ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return Outcome(False, again=not isinstance(error, ssl.SSLCertVerificationError), why=_why(error))
        if answer.will_close or len(said) == ANSWER_BYTES:
            self.close()
        judged = self._judge(answer.status, answer.getheader("retry-after"), said)
        return replace(judged, status=answer.status, advice=answer.getheader(ADVICE_HEADER) or "")

    def _open(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._connection is None:
            to = self._to
            self._connection = (
                http.client.HTTPSConnection(to.host, to.port, timeout=timeout_s, context=self._tls)
                if self._tls
                else http.client.HTTPConnection(to.host, to.port, timeout=timeout_s)
            )
        elif self._connection.sock is not None:
            self._connection.sock.settimeout(timeout_s)
        return self._connection

    @staticmethod
    def _judge(status: int, after: str | None, said: bytes) -> Outcome:
        if 200 <= status < 300:
            return Outcome(True)
        wait_s = (
            min(float(after), LONGEST_WAIT_S) if after and after.isascii() and after.isdecimal() else None
        )
        text = units.clean(said.decode("utf-8", "replace"), 120)
        return Outcome(False, status in AGAIN, wait_s, f"HTTP {status} {text}".rstrip())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


SERVICES = {
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}
GRPC_AGAIN = {
    "CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS",
    "RESOURCE_EXHAUSTED",
}  # fmt: skip


class GrpcSender:
    """The same over gRPC; bodies are encoded already, so no generated code is needed."""

    def __init__(self, destination: Destination) -> None:
        try:
            import grpc
        except ModuleNotFoundError as error:
            raise UsageError(
                "OTLP over gRPC needs a package that is not installed (grpcio)",
                hint="Install it: pip install 'ingero[otlp-grpc]', or use HTTP.",
            ) from error
        self._grpc = grpc
        self._headers = tuple(destination.headers.items())
        host = f"[{destination.host}]" if ":" in destination.host else destination.host
        options = [("grpc.primary_user_agent", AGENT)]
        packed = grpc.Compression.Gzip if destination.packed else grpc.Compression.NoCompression
        target = f"{host}:{destination.port}"
        self._channel: Any = (
            grpc.secure_channel(target, _credentials(grpc, destination), options, packed)
            if destination.secure
            else grpc.insecure_channel(target, options, packed)
        )

    def send(self, signal: str, body: bytes, timeout_s: float) -> Outcome:
        call = self._channel.unary_unary(SERVICES[signal])
        try:
            call(body, timeout=timeout_s, metadata=self._headers)
        except self._grpc.RpcError as error:
            code = error.code().name
            why = f"{code} {units.clean(error.details() or '', 120)}"
            return Outcome(False, code in GRPC_AGAIN, why=why)
        return Outcome(True)

    def close(self) -> None:
        self._channel.close()


def _credentials(grpc: Any, destination: Destination) -> Any:
    read = [path.read_bytes() if path else None for path in (
        destination.ca, destination.client_key, destination.client_cert)]  # fmt: skip
    return grpc.ssl_channel_credentials(*read)


def _why(error: Exception) -> str:
    text = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
    return units.clean(str(text) or type(error).__name__, 120)
