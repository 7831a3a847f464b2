"""Asks a served model in bursts.

client.py PATH BURST REST_MS
"""

from __future__ import annotations

import random
import socket
import sys
import time


def main() -> None:
    path, burst, rest_ms = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        while True:
            for _ in range(random.randint(1, burst)):
                server.sendall(b"q" * 64)
                server.recv(64)
            time.sleep(rest_ms * random.uniform(0.3, 1.7) / 1e3)


if __name__ == "__main__":
    main()
