"""Where each thread's time went, per window, from the kernel's accumulators.

The surprising part is a poll that spans windows: what it waited for is known only
when it wakes, so its time is held back and then written into the windows it covered.
Per window the buckets of a thread sum to the time it existed in that window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ingero.model.layout import Bucket, HeaderFlag
from ingero.model.window import BUCKETS, THREAD_TIME, Records

COUNTS = (
    "voluntary_switches",
    "involuntary_switches",
    "major_faults",
    "minor_faults",
    "throttled_ns",
    "late_ns",
    "system_ns",
    "spun_ns",
    "reclaiming_ns",
    "known",
)


@dataclass(slots=True)
class Known:
    """The last reading of a thread, and the polls not yet told."""

    acc: list[int]
    gap: list[int]
    counts: dict[str, int]
    now_ns: int
    pid: int
    comm: bytes
    feeder: bool
    pending: list[tuple[int, int]] = field(default_factory=list)  # (window, ns)
    told_ns: int = 0  # the window told last
    room: list[int] = field(default_factory=lambda: [0] * BUCKETS)  # of its time, what is no gap


def make_good(change: list[int]) -> None:
    """An open interval read as one bucket and closed as another was told once already.

    It happens to threads caught between two states; what was told too much of one is
    taken from the others, so that the sum stays what it is.
    """
    owed = -sum(ns for ns in change if ns < 0)
    for bucket in sorted(range(len(change)), key=change.__getitem__, reverse=True) if owed else ():
        paid = min(owed, max(change[bucket], 0))
        owed -= paid
        change[bucket] = max(change[bucket], 0) - paid


class ThreadBook:
    """Remembers the last reading of every thread and tells the difference."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Known] = {}

    def update(self, totals: Records, window_ns: int) -> Records:
        """Rows for the window that began at window_ns, and late ones for windows before it."""
        rows: list[tuple[object, ...]] = []
        gone = set(self._known)
        for record in totals:
            rows.extend(self._rows(record, window_ns))
            gone.discard((int(record["h"]["tid"]), int(record["h"]["start_ns"])))
        rows.extend(self._forget(gone))
        return np.array(rows, THREAD_TIME) if rows else np.zeros(0, THREAD_TIME)

    def _rows(self, record: np.void, window_ns: int) -> list[tuple[object, ...]]:
        header = record["h"]
        tid, start_ns = int(header["tid"]), int(header["start_ns"])
        now_ns = int(record["now_ns"])
        acc = [int(value) for value in record["acc"]]
        gap = [int(value) for value in record["gap"]]
        known = self._known.get((tid, start_ns))
        if known is None:
            known = self._first_sight(record, start_ns)
            self._known[tid, start_ns] = known
        # The open interval is in some of them, and may be told before it is over as what it was not.
        counts = {name: max(int(record[name]), known.counts[name]) for name in COUNTS}
        known.feeder = known.feeder or bool(header["flags"] & HeaderFlag.H_FEEDER)
        known.comm = bytes(header["comm"])
        change = [after - before for after, before in zip(acc, known.acc, strict=True)]
        gap_change = [after - before for after, before in zip(gap, known.gap, strict=True)]
        make_good(change)
        make_good(gap_change)
        rows = self._told(known, record, change, gap_change, tid)
        if record["undecided"]:
            known.pending.append((window_ns, min(int(record["open_ns"]), now_ns - known.now_ns)))
        delta = [counts[name] - known.counts[name] for name in COUNTS]
        rows.extend(self._earlier(known, tid, change, gap_change))
        if any(change) or any(delta):
            rows.append(self._row(window_ns, known, tid, change, gap_change, delta))
            known.told_ns = window_ns
            known.room = [max(whole - part, 0) for whole, part in zip(change, gap_change, strict=True)]
        known.acc, known.gap, known.counts, known.now_ns = acc, gap, counts, now_ns
        if record["dead"]:
            del self._known[tid, start_ns]
        return rows

    @staticmethod
    def _first_sight(record: np.void, start_ns: int) -> Known:
        header, none = record["h"], dict.fromkeys(COUNTS, 0)
        return Known(
            [0] * BUCKETS, [0] * BUCKETS, none, start_ns, int(header["pid"]), bytes(header["comm"]), False
        )

    def _told(
        self, known: Known, record: np.void, change: list[int], gap_change: list[int], tid: int
    ) -> list[tuple[object, ...]]:
        """A poll held back has ended: move its time into the windows it covered."""
        if not known.pending:
            return []
        still_open = record["undecided"] and int(record["open_ns"]) >= int(record["now_ns"]) - known.now_ns
        if still_open:
            return []
        bucket = int(record["spanned_bucket"])
        rows = []
        for window_ns, held in known.pending:
            ns = min(held, change[bucket])
            in_gap = min(ns, gap_change[bucket])
            change[bucket] -= ns
            gap_change[bucket] -= in_gap
            rows.append(self._late(window_ns, known, tid, bucket, ns, in_gap))
        known.pending.clear()
        return rows

    def _late(
        self, window_ns: int, known: Known, tid: int, bucket: int, ns: int, in_gap: int = 0
    ) -> tuple[object, ...]:
        late, gap = [0] * BUCKETS, [0] * BUCKETS
        late[bucket], gap[bucket] = ns, in_gap
        return self._row(window_ns, known, tid, late, gap, [0] * len(COUNTS))

    def _earlier(
        self, known: Known, tid: int, change: list[int], gap_change: list[int]
    ) -> list[tuple[object, ...]]:
        """That the GPU had nothing to do in a wait is known when the wait is over.

        What of it exceeds this window's time lay in the window before.
        """
        over = [
            min(max(part - whole, 0), room)
            for part, whole, room in zip(gap_change, change, known.room, strict=True)
        ]
        if not any(over):
            return []
        return [self._row(known.told_ns, known, tid, [0] * BUCKETS, over, [0] * len(COUNTS), over)]

    def _pending(self, known: Known, tid: int, bucket: Bucket) -> list[tuple[object, ...]]:
        """What is held back, told as one bucket."""
        rows = [self._late(window_ns, known, tid, bucket, held) for window_ns, held in known.pending]
        known.pending.clear()
        return rows

    def _forget(self, gone: set[tuple[int, int]]) -> list[tuple[object, ...]]:
        """Threads that are no more, and whose last accounting was lost on the way."""
        rows: list[tuple[object, ...]] = []
        for key in gone & self._known.keys():
            rows.extend(self._pending(self._known.pop(key), key[0], Bucket.UNEXPLAINED))
        return rows

    @staticmethod
    def _row(
        window_ns: int,
        known: Known,
        tid: int,
        ns: list[int],
        gap: list[int],
        counts: list[int],
        within: list[int] | None = None,  # time told before that the gap lies in
    ) -> tuple[object, ...]:
        by_name = dict(zip(COUNTS, counts, strict=True))
        return (
            window_ns,
            known.pid,
            tid,
            known.comm,
            known.feeder,
            ns,
            [min(part, whole) for part, whole in zip(gap, within or ns, strict=True)],
            by_name["throttled_ns"],
            by_name["system_ns"],
            by_name["spun_ns"],
            by_name["reclaiming_ns"],
            by_name["known"],
            by_name["late_ns"],
            by_name["voluntary_switches"],
            by_name["involuntary_switches"],
            by_name["major_faults"],
            by_name["minor_faults"],
            -1,  # gil_ns: the agent knows where the lock is
            0,
        )

    def finish(self) -> Records:
        """Polls still open when tracing ends: nothing came, so they slept."""
        rows: list[tuple[object, ...]] = []
        for (tid, _), known in self._known.items():
            rows.extend(self._pending(known, tid, Bucket.SLEEP))
        return np.array(rows, THREAD_TIME) if rows else np.zeros(0, THREAD_TIME)
