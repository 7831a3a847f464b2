"""Asks the API: so many at once, each again when answered, or in bursts, or hardly ever."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import threading
import time
from pathlib import Path

from runbook import Run


def connected(port: int) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask(connection: http.client.HTTPConnection, tokens: int, report: bool) -> None:
    words = json.dumps({"prompt": "why is it slow " * 8, "tokens": tokens, "report": report})
    connection.request("POST", "/v1/complete", words, {"Content-Type": "application/json"})
    connection.getresponse().read()


def user(run: Run, port: int, number: int) -> None:
    connection = connected(port)
    while True:
        for _ in range(run.get("burst", 1)):
            ask(connection, run.get("tokens", 1), False)
        time.sleep(run.get("think_s", 0) * (1 + 0.1 * number))


def reporter(run: Run, port: int) -> None:
    """The one who wants whole documents."""
    connection = connected(port)
    while True:
        if run.get("document_tokens"):
            ask(connection, run["document_tokens"], True)
        time.sleep(0.05)


def main() -> None:
    run = Run(sys.argv[1])
    port = Path(run.folder, "port")
    while not (port.exists() and port.read_text()):
        time.sleep(0.02)
    number = int(port.read_text())
    for each in range(run.get("users", 4)):
        threading.Thread(target=user, args=(run, number, each), daemon=True).start()
    reporter(run, number)


if __name__ == "__main__":
    main()
