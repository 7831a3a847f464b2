"""The feature store. `store.py FOLDER NAME tcp|http|udp|metrics [HOST:PORT]`"""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from runbook import Run

RUN = Run(sys.argv[1])


class Rows(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while len(asked := self.request.recv(8, socket.MSG_WAITALL)) == 8:
            _, rows = struct.unpack("!II", asked)
            if RUN.get("compaction_s"):
                time.sleep(RUN["compaction_s"])
            self.request.sendall(bytes(rows * 64))


class Scores(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        items = int(self.path.rsplit("=", 1)[1])
        scores = [sum(i * k for k in range(20)) / (i + 1) for i in range(items)]
        for _ in range(RUN.get("ensemble", 1) - 1):
            scores = [value * 0.5 + sum(k for k in range(20)) for value in scores]
        body = json.dumps({"scores": scores}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


class Tcp(socketserver.ThreadingTCPServer):
    request_queue_size = 128
    allow_reuse_address = daemon_threads = True


class Http(ThreadingHTTPServer):
    daemon_threads = True


class Metrics(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(64)


def names(out: Path) -> None:
    """Answers for as long as it is told to."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        out.write_text(str(listening.getsockname()[1]))
        while True:
            _, back = listening.recvfrom(512)
            if not RUN.get("names_away"):
                listening.sendto(b"127.0.0.1", back)


def main() -> None:
    name, kind = sys.argv[2], sys.argv[3]
    Path("/proc/self/comm").write_text(name)
    host, port = sys.argv[4].rsplit(":", 1) if len(sys.argv) > 4 else ("127.0.0.1", "0")
    out = RUN.folder / f"{name}.port"
    if kind == "udp":
        names(out)
    made: dict[str, Any] = {"tcp": (Tcp, Rows), "http": (Http, Scores), "metrics": (Tcp, Metrics)}
    server_type, handler = made[kind]
    server = server_type((host, int(port)), handler)
    out.write_text(str(server.server_address[1]))
    if kind == "metrics":
        while not RUN.get("metrics_away"):
            server.timeout = 0.5
            server.handle_request()
        server.server_close()
        time.sleep(1000)
    server.serve_forever()


if __name__ == "__main__":
    main()
