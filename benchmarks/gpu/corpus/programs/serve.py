"""An inference server that listens and is asked now and then by a client of its own making.

    serve.py SETTINGS.json BOOK

Settings: work, requests (ms between two questions). Speaks with its parent as fit.py does.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from work import WORK

ASK = """
import socket, sys, time
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while True:
    link.sendall(b"?")
    if not link.recv(16): break
    time.sleep(float(sys.argv[2]) / 1e3)
"""


def _until_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def main(settings: dict[str, Any], book: Path) -> None:
    sys.stdin.readline()
    step = WORK[settings["work"]](1)
    for _ in range(5):
        step()
    listening = socket.create_server(("127.0.0.1", 0))
    os.spawnlp(
        os.P_NOWAIT, "setsid", "setsid", sys.executable, "-c", ASK,
        str(listening.getsockname()[1]), str(settings["requests"]),
    )  # fmt: skip
    link, _ = listening.accept()
    ended = threading.Event()
    threading.Thread(target=_until_end, args=(ended,), daemon=True).start()
    print(f"ready {os.getpid()}", flush=True)
    ends = []
    while not ended.is_set() and link.recv(16):
        step()
        ends.append(time.monotonic_ns())
        link.sendall(b"!")
    book.write_text(json.dumps({"bitten": 0, "ends": ends}))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
