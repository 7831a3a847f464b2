"""Serves a model: waits for a request, runs it on the device, answers.

    serve.py SETTINGS BOOK

Prints `ready PID`, waits for a line, then listens on the path named as `server`.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from book import Book
from device import Device
from settings import read_plan


def main() -> None:
    plan, book = read_plan(sys.argv[1]), Book(sys.argv[2])
    device = Device(plan.usual, book)
    with socket.socket(socket.AF_UNIX) as listener:
        Path(plan.usual.server).unlink(missing_ok=True)
        listener.bind(plan.usual.server)
        listener.listen()
        print("ready", os.getpid(), flush=True)
        sys.stdin.readline()
        device.start()
        while True:
            client, _ = listener.accept()
            while client.recv(64):
                device.train(plan.at(book.phase))
                client.sendall(b"a" * 64)
                book.step_ended()


if __name__ == "__main__":
    main()
