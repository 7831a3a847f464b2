"""Stands where an OpenTelemetry Collector may: takes OTLP from many, answers at once, hands it on later.

What it knows is OTLP and nothing of ours: requests are decoded, those of several senders put into one, and
encoded anew, as protobuf or as JSON. Headers of senders and of the receiver are lost on the way.
"""

from __future__ import annotations

import gzip
import http.client
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

REQUESTS: dict[str, Any] = {
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}
TOGETHER = 5  # requests in one
TRIES = 50


class PassingOn:
    """Listens on loopback; `port` is where."""

    def __init__(self, to_port: int, token: str, as_json: bool) -> None:
        self._to, self._token, self._as_json = to_port, token, as_json
        self._waiting: queue.Queue[tuple[str, Any] | None] = queue.Queue()
        self.answers: list[int] = []
        taken = self._waiting

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                packed = self.headers.get("content-encoding") == "gzip"
                request = REQUESTS[self.path]()
                request.ParseFromString(gzip.decompress(body) if packed else body)
                taken.put((self.path, request))
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._threads = [threading.Thread(target=each) for each in (self._server.serve_forever, self._work)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Everything was handed on."""
        self._server.shutdown()
        self._waiting.put(None)
        for thread in self._threads:
            thread.join(60)
        self._server.server_close()

    def _work(self) -> None:
        kept: dict[str, list[Any]] = {path: [] for path in REQUESTS}
        while (each := self._waiting.get()) is not None:
            path, request = each
            kept[path].append(request)
            if len(kept[path]) == TOGETHER:
                self._hand_on(path, kept[path])
                kept[path] = []
        for path, requests in kept.items():
            if requests:
                self._hand_on(path, requests)

    def _hand_on(self, path: str, requests: list[Any]) -> None:
        whole = REQUESTS[path]()
        for each in requests:
            whole.MergeFrom(each)
        body = json_format.MessageToJson(whole).encode() if self._as_json else whole.SerializeToString()
        kind = "application/json" if self._as_json else "application/x-protobuf"
        headers = {"content-type": kind, "authorization": f"Bearer {self._token}"}
        for _ in range(TRIES):
            connection = http.client.HTTPConnection("127.0.0.1", self._to, timeout=20)
            connection.request("POST", path, body, headers)
            self.answers.append(connection.getresponse().status)
            connection.close()
            if self.answers[-1] != 503:
                return
