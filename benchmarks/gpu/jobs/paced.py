"""One kind of work over and over, until its input ends; what every step took goes to a file.

    paced.py WORK BOOK

Says `ready PID`, then runs. Every now and then a loop that has nothing to do with the
card is timed too: cores of shared machines change their speed within seconds, and a step
that takes 3 % longer while that loop does too has not become slower.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from array import array
from pathlib import Path

import models

REFERENCE_EVERY_NS = 20_000_000
REFERENCE_TURNS = 8_000


def reference_ns() -> int:
    """How long a fixed piece of Python takes now."""
    before = time.perf_counter_ns()
    value = 0
    for number in range(REFERENCE_TURNS):
        value = (value + number) & 1023
    return time.perf_counter_ns() - before


def main(work: str, book: Path) -> None:
    step = models.MAKERS[work]()
    until = time.monotonic() + 4
    while time.monotonic() < until:
        step()
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    print(f"ready {os.getpid()}", flush=True)
    times, references = array("q"), array("q")
    now = asked = time.monotonic_ns()
    while not ended.is_set():
        step()
        after = time.monotonic_ns()
        times.extend((now, after - now))
        now = after
        if now - asked > REFERENCE_EVERY_NS:
            references.extend((now, reference_ns()))
            now = asked = time.monotonic_ns()
    with book.open("wb") as file:
        array("q", (len(times), len(references))).tofile(file)
        times.tofile(file)
        references.tofile(file)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
