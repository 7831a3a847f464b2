"""One kind of work over and over, until its input ends; what every step took goes to a file.

    paced.py WORK BOOK

Says `ready PID`, then runs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from array import array
from pathlib import Path

import models


def main(work: str, book: Path) -> None:
    step = models.MAKERS[work]()
    until = time.monotonic() + 4
    while time.monotonic() < until:
        step()
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    print(f"ready {os.getpid()}", flush=True)
    times = array("q")
    now = time.monotonic_ns()
    while not ended.is_set():
        step()
        after = time.monotonic_ns()
        times.extend((now, after - now))
        now = after
    with book.open("wb") as file:
        times.tofile(file)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
