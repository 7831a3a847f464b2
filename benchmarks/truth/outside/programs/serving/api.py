"""Answers requests over HTTP: handler threads put them in a queue, one thread runs them in batches."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from runbook import Run
from torchlet import Device

from serving.batcher import Batcher
from serving.statistics import Statistics

RUN = Run()
BATCHER = Batcher(Device(), RUN)
STATISTICS = Statistics()


class Handler(BaseHTTPRequestHandler):
    disable_nagle_algorithm = True
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        began = time.monotonic()
        BATCHER.submit(asked).wait()
        STATISTICS.answered(time.monotonic() - began)
        if not asked.get("report"):
            RUN.step()
        body = b'{"ok": true}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


class Quick(ThreadingHTTPServer):
    daemon_threads = True


def main() -> None:
    server = Quick(("127.0.0.1", 0), Handler)
    threading.Thread(target=BATCHER.serve, args=(STATISTICS,), daemon=True).start()
    threading.Thread(target=STATISTICS.report, args=(RUN,), daemon=True).start()
    (RUN.folder / "port").write_text(str(server.server_address[1]))
    server.serve_forever()


if __name__ == "__main__":
    main()
