"""The last minutes of every job and of the threads that feed it, second by second, for the live view.

Bounded in both directions: SECONDS of each, and only the TRACKS that were busy last. A second here
is a window of the agent, so its numbers are those that are stored and that `explain` adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ingero.model.gpus import GpuNews
from ingero.model.histogram import Counts
from ingero.model.live import History, Second
from ingero.model.window import BUCKET_NAMES, BUCKETS, Window

SECONDS = 300
TRACKS = 256
Kept = TypeVar("Kept")


@dataclass
class _Track:
    """One job (tid None) or thread, by the start of the window."""

    ns: dict[int, Counts] = field(default_factory=dict)
    calls: dict[int, dict[int, int]] = field(default_factory=dict)  # operation: how often
    busy: dict[int, float] = field(default_factory=dict)  # its cards


class LiveHistory:
    """Counts windows in, and tells them again."""

    def __init__(self) -> None:
        self._tracks: dict[tuple[int, int | None], _Track] = {}
        self._lengths: dict[int, int] = {}  # of windows, by their start

    def add(self, window: Window) -> None:
        at = window.start_ns
        _keep(self._lengths, at, max(window.end_ns - at, 1))
        for row in window.threads[window.threads["feeder"]]:
            # A wait that was polled is told when it ends, with the second it belongs to.
            second = int(row["window_ns"]) if int(row["window_ns"]) in self._lengths else at
            for tid in (None, int(row["tid"])):
                track = self._track(int(row["pid"]), tid)
                if second not in track.ns:
                    _keep(track.ns, second, np.zeros(BUCKETS, np.uint64))
                track.ns[second] = track.ns[second] + row["ns"]
        self._count(window)
        self._look_at_cards(window.gpus, at)

    def _track(self, pid: int, tid: int | None) -> _Track:
        track = self._tracks.pop((pid, tid), None) or _Track()
        self._tracks[pid, tid] = track  # the one met last stands last
        if len(self._tracks) > TRACKS:
            self._tracks.pop(next(iter(self._tracks)))
        return track

    def _count(self, window: Window) -> None:
        for row in window.operations:
            track = self._tracks.get((int(row["pid"]), None))
            if track is None:
                continue
            if window.start_ns not in track.calls:
                _keep(track.calls, window.start_ns, {})
            calls, op = track.calls[window.start_ns], int(row["op"])
            calls[op] = calls.get(op, 0) + int(row["count"])

    def _look_at_cards(self, news: GpuNews, at: int) -> None:
        shares = {each.gpu_id: each.gpu_share for each in news.samples if each.gpu_share is not None}
        users: dict[int, set[int]] = {}
        for each in news.processes:
            users.setdefault(each.pid, set()).add(each.gpu_id)
        for (pid, tid), track in self._tracks.items():
            cards = users.get(pid) or (set(shares) if len(shares) == 1 else set())
            known = [shares[gpu_id] for gpu_id in cards if gpu_id in shares]
            if tid is None and known:
                _keep(track.busy, at, sum(known) / len(known))

    def view(self, now_ns: int, end_ns: int, steps: Mapping[int, int]) -> tuple[History, ...]:
        """`now_ns`: the wall clock at `end_ns`; `steps`: which operation marks a step, by process."""
        return tuple(
            History(
                pid, tid, tuple(self._second(track, at, now_ns - end_ns, steps.get(pid)) for at in track.ns)
            )
            for (pid, tid), track in self._tracks.items()
        )

    def _second(self, track: _Track, at: int, wall_ns: int, op: int | None) -> Second:
        length_ns = self._lengths.get(at, 1_000_000_000)
        calls = track.calls.get(at)
        return Second(
            at_ns=at + wall_ns,
            length_ns=length_ns,
            time_ns={name: int(ns) for name, ns in zip(BUCKET_NAMES, track.ns[at], strict=True) if ns},
            steps_per_s=None if op is None or calls is None else calls.get(op, 0) * 1e9 / length_ns,
            gpu_busy_share=track.busy.get(at),
        )


def _keep(kept: dict[int, Kept], at: int, value: Kept) -> None:
    kept[at] = value
    while len(kept) > SECONDS:
        del kept[next(iter(kept))]
