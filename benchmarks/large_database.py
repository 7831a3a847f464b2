"""Databases written by the real writer and kept between runs: a gigabyte, and a busy hour.

Their windows are copies of a made-up stretch of time, moved; making them anew each
time would take longer than storing them. Only the connection's durability is off,
which changes no byte of what is written.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.jobs import BUILT
from ingero.clock import Clock
from ingero.model.window import Records, Window
from ingero.scenarios import synthetic
from ingero.scenarios.catalogue import INCIDENT
from ingero.store.schema import TABLES
from ingero.store.writer import Writer

TARGET_BYTES = 1_000_000_000
COPIES = 4  # of each record within its second: about a thousand rows
HOUR_S = 3600
SECOND = 1_000_000_000


def moved(records: Records, by_ns: int) -> Records:
    later = records.copy()
    later["h"]["start_ns"] += np.uint64(by_ns)
    return later


def template(start_ns: int) -> list[Window]:
    """A healthy stretch, one of contention, and a healthy one again, as a default trace records them."""
    return list(synthetic.windows(INCIDENT.story, seed=7, start_ns=start_ns))


def dense(window: Window) -> Window:
    """Each record several times, as if more of the calls deserved one."""
    return replace(
        window,
        calls=_repeated(window.calls),
        waits=_repeated(window.waits),
        call_stacks=np.tile(window.call_stacks, COPIES),
        wait_stacks=np.tile(window.wait_stacks, COPIES),
    )


def _repeated(records: Records) -> Records:
    return np.concatenate([moved(records, copy * 1000) for copy in range(COPIES)])


def again_and_again(windows: list[Window]) -> Iterator[Window]:
    """One turn after the other, without end. Who they are is told in the first."""
    rounds = 1 + max(int(window.calls["seq"].max(initial=0)) for window in windows)
    turn = 0
    while True:
        for window in windows:
            yield _later(window, turn * len(windows) * SECOND, turn * rounds) if turn else window
        turn += 1


def _later(window: Window, by_ns: int, rounds: int) -> Window:
    calls, threads = moved(window.calls, by_ns), window.threads.copy()
    calls["seq"][calls["seq"] > 0] += np.uint64(rounds)  # collectives are counted on
    threads["window_ns"] += np.uint64(by_ns)
    return replace(
        window,
        start_ns=window.start_ns + by_ns,
        end_ns=window.end_ns + by_ns,
        calls=calls,
        waits=moved(window.waits, by_ns),
        threads=threads,
        processes=[],
        bystanders=[],
        containers=[],
    )


def build(path: Path, windows: list[Window], enough: Callable[[int], bool]) -> int:
    """Write windows until that many are enough; returns how many."""
    with Writer(path, "bench", Clock.now(), synthetic.OPERATIONS) as writer:
        writer._connection.execute("PRAGMA synchronous = OFF")
        for count, window in enumerate(again_and_again(windows)):
            if enough(count):
                return count
            status = writer.write(window)
            if status:
                raise RuntimeError(f"cannot build the database: {status}")
    raise AssertionError("windows do not end")


def kept(name: str, make: Callable[[Path], object]) -> tuple[Path, float]:
    """The file, and how many seconds it took to build; 0 when it was there."""
    schema = hashlib.sha256("".join(TABLES).encode()).hexdigest()[:12]
    path = BUILT / f"{name}-{schema}.db"
    if path.exists():
        return path, 0.0
    BUILT.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    for part in BUILT.glob(f"{unfinished.name}*"):
        part.unlink()
    begin = time.perf_counter()
    make(unfinished)
    unfinished.rename(path)
    return path, time.perf_counter() - begin


def large_database() -> tuple[Path, float]:
    """About a gigabyte."""
    windows = [dense(window) for window in template(time.monotonic_ns())]
    return kept("large", lambda path: build(path, windows, lambda _: path.stat().st_size >= TARGET_BYTES))


def busy_hour() -> tuple[Path, float]:
    """An hour of a job that makes more than ten million calls."""
    windows = template(time.monotonic_ns())
    return kept("hour", lambda path: build(path, windows, lambda count: count >= HOUR_S))
