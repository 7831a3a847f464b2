"""A database of about a gigabyte, written by the real writer and kept between runs.

Its windows are copies of a made-up second, moved in time; making them anew each
time would take longer than storing them. Only the connection's durability is off,
which changes no byte of what is written.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.jobs import BUILT
from ingero.clock import Clock
from ingero.model.window import Records, Window
from ingero.scenarios import incident, synthetic
from ingero.store.schema import TABLES
from ingero.store.writer import Writer

TARGET_BYTES = 1_000_000_000
COPIES = 4  # of each record within its second: about a thousand rows
SECOND = 1_000_000_000


def moved(records: Records, by_ns: int) -> Records:
    later = records.copy()
    later["h"]["start_ns"] += np.uint64(by_ns)
    return later


def template(start_ns: int) -> list[Window]:
    """A healthy stretch and one of contention, each record several times."""
    seconds = list(synthetic.windows(incident.SCENARIO.story, 7, start_ns))
    return [
        replace(window, calls=_repeated(window.calls), waits=_repeated(window.waits)) for window in seconds
    ]


def _repeated(records: Records) -> Records:
    return np.concatenate([moved(records, copy * 1000) for copy in range(COPIES)])


def build(path: Path, wanted_bytes: int) -> int:
    """Write windows until the file is large enough; returns how many."""
    clock = Clock.now()
    start_ns = time.monotonic_ns()
    windows = template(start_ns)
    with Writer(path, "bench", clock, synthetic.OPERATIONS) as writer:
        writer._connection.execute("PRAGMA synchronous = OFF")
        count = 0
        while path.stat().st_size < wanted_bytes:
            turn, at = divmod(count, len(windows))
            status = writer.write(later(windows[at], turn * len(windows) * SECOND))
            if status:
                raise RuntimeError(f"cannot build the database: {status}")
            count += 1
    return count


def later(window: Window, by_ns: int) -> Window:
    """The same second again, that much later."""
    threads = window.threads.copy()
    threads["window_ns"] += np.uint64(by_ns)
    return replace(
        window,
        start_ns=window.start_ns + by_ns,
        end_ns=window.end_ns + by_ns,
        calls=moved(window.calls, by_ns),
        waits=moved(window.waits, by_ns),
        threads=threads,
    )


def large_database() -> tuple[Path, float]:
    """The file, and how many seconds it took to build; 0 when it was there."""
    schema = hashlib.sha256("".join(TABLES).encode()).hexdigest()[:12]
    path = BUILT / f"large-{schema}.db"
    if path.exists():
        return path, 0.0
    BUILT.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    for part in BUILT.glob(f"{unfinished.name}*"):
        part.unlink()
    begin = time.perf_counter()
    build(unfinished, TARGET_BYTES)
    unfinished.rename(path)
    return path, time.perf_counter() - begin
