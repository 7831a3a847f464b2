"""A service: answers each line after as many milliseconds as the line says.

answer.py PORT
"""

from __future__ import annotations

import socketserver
import sys
import time


class Answer(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            time.sleep(float(line) / 1e3)
            self.wfile.write(b"done\n")


if __name__ == "__main__":
    with socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Answer) as server:
        server.daemon_threads = True
        server.serve_forever()
