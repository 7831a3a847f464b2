"""What the agent says about one thread's time, beside what the thread says itself.

A stage is a workload that plays acts, each in a thread of its own; a performance is
the accounting of that thread from its first instant to its last.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingero.model.layout import Bucket, WakerKind
from ingero.model.window import BUCKET_NAMES
from tests.ebpf.tracing import Tracer, Workload, workload

Rows = np.ndarray[Any, Any]
MS = 1_000_000


class Readings:
    """Every reading of thread totals as the agent had it, before differences are taken."""

    def __init__(self, tracer: Tracer) -> None:
        book = tracer.agent._reader._threads
        self.totals: list[Rows] = []
        update = book.update

        def listening(totals: Rows, window_ns: int) -> Rows:
            self.totals.append(totals.copy())
            return update(totals, window_ns)

        book.update = listening  # type: ignore[method-assign]

    def of(self, tid: int) -> Rows:
        found = [rows[rows["h"]["tid"] == tid] for rows in self.totals]
        found = [rows for rows in found if len(rows)]
        return np.concatenate(found)

    def died(self, tid: int) -> bool:
        return any((rows["dead"][rows["h"]["tid"] == tid] > 0).any() for rows in self.totals)


@dataclass
class Performance:
    """One act as accounted."""

    said: dict[str, Any]
    ns: dict[str, int]
    rows: Rows  # window.threads of the thread
    totals: Rows  # its readings, the last one dead
    waits: Rows
    wakers: Rows
    culprits: Rows
    calls: Rows
    blocks: Rows
    windows: list[Any] = field(default_factory=list)

    @property
    def wall_ns(self) -> int:
        return sum(self.ns.values())

    def share(self, bucket: str) -> float:
        return self.ns[bucket] / self.wall_ns

    def wakers_of(self, bucket: str) -> Rows:
        """Longest first."""
        mine = self.wakers[self.wakers["bucket"] == Bucket[bucket.upper()]]
        return mine[np.argsort(mine["ns"])[::-1]]

    def main_waker(self, bucket: str) -> tuple[str, int, int]:
        """Kind, pid and tid of whoever ended most of the time in a bucket."""
        found = self.wakers_of(bucket)
        assert len(found), f"nobody ended a {bucket}"
        return WakerKind(int(found[0]["kind"])).name, int(found[0]["waker_pid"]), int(found[0]["waker_tid"])


@dataclass
class Stage:
    """A running workload that plays acts."""

    tracer: Tracer
    job: Workload
    readings: Readings

    @property
    def pid(self) -> int:
        return self.job.pid

    def play(self, act: str, *words: object, window_s: float = 0.25) -> Performance:
        first = len(self.tracer.windows)
        said = self._perform(act, words, window_s)
        tid = said["tid"]
        self.tracer.until(lambda: self.tracer.tick() and self.readings.died(tid))
        windows = self.tracer.windows[first:]
        rows = _of(windows, "threads", lambda each: each["tid"] == tid)
        sums = rows["ns"].sum(axis=0, dtype=np.uint64)
        return Performance(
            said,
            dict(zip(BUCKET_NAMES, map(int, sums), strict=True)),
            rows,
            self.readings.of(tid),
            _of(windows, "waits", lambda each: each["h"]["tid"] == tid),
            _of(windows, "wakers", lambda each: each["tid"] == tid),
            _of(windows, "culprits", lambda each: each["victim_tid"] == tid),
            _of(windows, "calls", lambda each: each["h"]["tid"] == tid),
            _of(windows, "blocks", lambda each: each["h"]["tid"] == tid),
            windows,
        )

    def _perform(self, act: str, words: tuple[object, ...], window_s: float) -> dict[str, Any]:
        """Read windows while it acts, as the agent does every second."""
        assert self.job.process.stdin is not None
        self.job.process.stdin.write(" ".join(map(str, (act, *words))) + "\n")
        self.job.process.stdin.flush()
        told: list[Any] = []
        waiting = threading.Thread(target=lambda: told.extend(self.job.wait_done()))
        waiting.start()
        while waiting.is_alive():
            waiting.join(window_s)
            self.tracer.tick()
        assert told, "the stage said nothing"
        return dict(told[0])


def _of(windows: list[Any], name: str, mine: Any) -> Rows:
    rows: Rows = np.concatenate([getattr(window, name) for window in windows])
    return rows[mine(rows)]


@contextmanager
def stage(tracer: Tracer, readings: Readings | None = None, **more: Any) -> Iterator[Stage]:
    with workload("waits/stage.py", **more) as job:
        tracer.until_target(job.pid)
        yield Stage(tracer, job, readings or Readings(tracer))


def adds_up(played: Performance) -> None:
    """The sum rules, which hold for every thread whatever it did."""
    last = played.totals[-1]
    assert last["dead"] == 1
    # Exactly, over its whole life, and as the kernel side added it up itself.
    lived_ns = int(last["now_ns"]) - int(last["h"]["start_ns"])
    assert int(last["acc"].sum()) == lived_ns
    assert played.wall_ns == lived_ns
    for reading in played.totals:
        accounted = int(reading["acc"].sum()) + (int(reading["open_ns"]) if reading["undecided"] else 0)
        assert accounted == int(reading["now_ns"]) - int(reading["h"]["start_ns"])
    # Within 1 % of what the thread itself took for it, thread start and end apart.
    own_ns = played.said["end_ns"] - played.said["start_ns"]
    assert lived_ns >= own_ns
    assert lived_ns - own_ns < max(own_ns // 100, 20 * MS)


def agrees(accounted_ns: int, kernel_ns: int) -> bool:
    """Within 2 % of the kernel's own number, or a millisecond where that is more."""
    return abs(accounted_ns - kernel_ns) <= max(kernel_ns // 50, MS)
