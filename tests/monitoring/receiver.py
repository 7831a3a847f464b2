"""A receiver of OTLP that keeps what it is given, over HTTP or gRPC; it can go away and come back."""

from __future__ import annotations

import gzip
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

REQUESTS: dict[str, Any] = {
    "metrics": ExportMetricsServiceRequest,
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
}
RESPONSES: dict[str, Any] = {
    "metrics": ExportMetricsServiceResponse,
    "traces": ExportTraceServiceResponse,
    "logs": ExportLogsServiceResponse,
}
GRPC = {
    "opentelemetry.proto.collector.metrics.v1.MetricsService": "metrics",
    "opentelemetry.proto.collector.trace.v1.TraceService": "traces",
    "opentelemetry.proto.collector.logs.v1.LogsService": "logs",
}


class Stored:
    """Everything that was taken, parsed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: dict[str, list[Any]] = {"metrics": [], "traces": [], "logs": []}
        self.headers: list[dict[str, str]] = []

    def take(self, signal: str, body: bytes, headers: dict[str, str]) -> bytes:
        request = REQUESTS[signal].FromString(body)
        with self._lock:
            self.requests[signal].append(request)
            self.headers.append(headers)
        return bytes(RESPONSES[signal]().SerializeToString())

    def metrics(self) -> list[Any]:
        return [
            metric
            for request in self.requests["metrics"]
            for part in request.resource_metrics
            for metric in part.scope_metrics[0].metrics
        ]

    def records(self) -> list[Any]:
        parts = [part for request in self.requests["logs"] for part in request.resource_logs]
        return [record for part in parts for record in part.scope_logs[0].log_records]

    def spans(self) -> list[Any]:
        parts = [part for request in self.requests["traces"] for part in request.resource_spans]
        return [span for part in parts for span in part.scope_spans[0].spans]


class HttpReceiver:
    """`refuse`: answers still to be given instead of taking something: (status, headers)."""

    def __init__(self, stored: Stored, port: int = 0) -> None:
        self.refuse: list[tuple[int, dict[str, str]]] = []
        self.connections: list[socket.socket] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if receiver.refuse:
                    status, headers = receiver.refuse.pop(0)
                    self._answer(status, b"not now", headers)
                    return
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                signal = self.path.removeprefix("/v1/")
                given = {name.lower(): value for name, value in self.headers.items()}
                self._answer(200, stored.take(signal, body, given), {})

            def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True

            def process_request(self, request: Any, client_address: Any) -> None:
                receiver.connections.append(request)
                super().process_request(request, client_address)

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for each in self.connections:  # as when the program ends
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class GrpcReceiver:
    """The same over gRPC."""

    def __init__(self, stored: Stored) -> None:
        import grpc

        self._server = grpc.server(ThreadPoolExecutor(4))
        for service, signal in GRPC.items():

            def take(request: bytes, context: Any, signal: str = signal) -> bytes:
                return stored.take(signal, request, dict(context.invocation_metadata()))

            method = grpc.unary_unary_rpc_method_handler(take)
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, {"Export": method}),)
            )
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def close(self) -> None:
        self._server.stop(0).wait()
