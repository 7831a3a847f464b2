"""A feature store: answers requests of a known length, quickly as usual, slowly later.

features.py ADDRESS BOOK SLEEP_MS CPU_MS [EVERY]: slowly each so many requests.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from pathlib import Path

from book import Book
from work import compute


def listening(address: str) -> socket.socket:
    host, colon, port = address.rpartition(":")
    if colon:
        return socket.create_server((host, int(port)))
    Path(address).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    return listener


def receive(client: socket.socket, count: int) -> None:
    while count > 0:
        got = len(client.recv(min(count, 1 << 20)))
        if not got:
            raise ConnectionResetError
        count -= got


def main() -> None:
    address, book = sys.argv[1], Book(sys.argv[2])
    sleep_ms, cpu_ms = float(sys.argv[3]), float(sys.argv[4])
    every, requests = int(sys.argv[5]) if len(sys.argv) > 5 else 1, 0
    with listening(address) as listener:
        print("ready", flush=True)
        while True:
            client, _ = listener.accept()
            if client.family != socket.AF_UNIX:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(ConnectionError):
                while length := client.recv(8, socket.MSG_WAITALL):
                    receive(client, int.from_bytes(length))
                    requests += 1
                    if book.phase and requests % every == 0:
                        time.sleep(sleep_ms / 1e3)
                        compute(cpu_ms)
                    client.sendall(b"f" * 64)


if __name__ == "__main__":
    main()
