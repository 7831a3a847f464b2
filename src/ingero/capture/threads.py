"""Where each thread's time went, per window, from the kernel's accumulators.

The surprising part is a poll that spans windows: what it waited for is known only
when it wakes, so its time is held back and then written into the windows it covered.
Per window the buckets of a thread sum to the time it existed in that window. All threads
of a reading are worked on together: there may be thousands, once a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingero.model.layout import Bucket, GilMark, HeaderFlag
from ingero.model.window import BUCKETS, THREAD_TIME, Records, Window

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
# The last reading of a thread.
KNOWN = np.dtype(
    [
        ("acc", "<i8", (BUCKETS,)),
        ("gap", "<i8", (BUCKETS,)),
        ("counts", "<i8", (len(COUNTS),)),
        ("room", "<i8", (BUCKETS,)),  # of its time in the window told last, what is no gap
        ("told_ns", "<u8"),  # the window told last
        ("now_ns", "<i8"),
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("comm", "S16"),
        ("feeder", "?"),
    ]
)
Key = tuple[int, int]  # (tid, since when it is accounted)
Amounts = NDArray[np.int64]  # a row for each thread


def repay_told_twice(change: Amounts) -> None:
    """An open interval read as one bucket and closed as another was told once already.

    It happens to threads caught between two states; what was told too much of one is
    taken from the others, so that the sum stays what it is.
    """
    for at in np.flatnonzero((change < 0).any(axis=1)):
        row = change[at]
        owed = -int(row[row < 0].sum())
        for bucket in np.argsort(-row, kind="stable"):
            paid = min(owed, max(int(row[bucket]), 0))
            owed -= paid
            row[bucket] = max(int(row[bucket]), 0) - paid


class ThreadBook:
    """Remembers the last reading of every thread and tells the difference."""

    def __init__(self) -> None:
        self._places: dict[Key, int] = {}  # in the next
        self._known = np.zeros(0, KNOWN)
        self._polls = HeldPolls()

    def update(self, totals: Records, window_ns: int) -> Records:
        """Rows for the window that began at window_ns, and late ones for windows before it."""
        keys = list(zip(totals["h"]["tid"].tolist(), totals["h"]["start_ns"].tolist(), strict=True))
        known = self._recall(keys, totals)
        gone = self._places.keys() - set(keys)
        forgotten = self._late(self._polls.drop(gone, Bucket.UNEXPLAINED), self._known, self._places)
        places = {key: at for at, key in enumerate(keys)}
        change = totals["acc"].astype(np.int64) - known["acc"]
        gap_change = totals["gap"].astype(np.int64) - known["gap"]
        repay_told_twice(change)
        repay_told_twice(gap_change)
        polls = self._polls.update(keys, totals, known["now_ns"], change, gap_change, window_ns)
        late = self._late(polls, known, places)
        earlier = self._earlier(known, change, gap_change)
        told = self._tell(known, totals, change, gap_change, window_ns)
        alive = totals["dead"] == 0
        self._known = known[alive]
        self._places = {
            key: at for at, key in enumerate(key for key, lives in zip(keys, alive, strict=True) if lives)
        }
        return np.concatenate([forgotten, late, earlier, told])

    def _recall(self, keys: list[Key], totals: Records) -> Records:
        """What is known of these threads; of those met first, nothing."""
        known = np.zeros(len(keys), KNOWN)
        known["now_ns"] = totals["h"]["start_ns"]
        known["pid"], known["tid"] = totals["h"]["pid"], totals["h"]["tid"]
        before = np.array([self._places.get(key, -1) for key in keys], np.intp)
        met = before >= 0
        known[met] = self._known[before[met]]
        known["comm"] = totals["h"]["comm"]
        known["feeder"] |= (totals["h"]["flags"] & HeaderFlag.H_FEEDER) > 0
        return known

    @staticmethod
    def _tell(
        known: Records, totals: Records, change: Amounts, gap_change: Amounts, window_ns: int
    ) -> Records:
        """The window's own rows; and this reading is the last one from now on."""
        # The open interval is in some of them, and may be told before it is over as what it was not.
        counts = np.stack([totals[name].astype(np.int64) for name in COUNTS], axis=1)
        counts = np.maximum(counts, known["counts"])
        delta = counts - known["counts"]
        some = change.any(axis=1) | delta.any(axis=1)
        known["told_ns"][some] = window_ns
        known["room"][some] = np.maximum(change - gap_change, 0)[some]
        known["acc"], known["gap"], known["counts"] = totals["acc"], totals["gap"], counts
        known["now_ns"] = totals["now_ns"]
        rows = _rows(known[some], np.full(int(some.sum()), window_ns, np.uint64))
        rows["ns"], rows["gap"] = change[some], np.minimum(gap_change, change)[some]
        for at, name in enumerate(COUNTS):
            rows[name] = delta[some, at]
        return rows

    @staticmethod
    def _earlier(known: Records, change: Amounts, gap_change: Amounts) -> Records:
        """That the GPU had nothing to do in a wait is known when the wait is over.

        What of it exceeds this window's time lay in the window before.
        """
        over = np.minimum(np.maximum(gap_change - change, 0), known["room"])
        some = over.any(axis=1)
        rows = _rows(known[some], known["told_ns"][some])
        rows["gap"] = over[some]
        return rows

    @staticmethod
    def _late(polls: Iterable[LatePart], known: Records, places: dict[Key, int]) -> Records:
        """Parts of polls, in the windows they lie in."""
        told = list(polls)
        at = [places[each.key] for each in told]
        rows = _rows(known[at], np.array([each.window_ns for each in told], np.uint64))
        for row, each in zip(rows, told, strict=True):
            row["ns"][each.bucket], row["gap"][each.bucket] = each.ns, each.gap_ns
        return rows

    def finish(self) -> Records:
        """Polls still open when tracing ends: nothing came, so they slept."""
        return self._late(self._polls.drop(set(self._places), Bucket.SLEEP), self._known, self._places)


def _rows(known: Records, window_ns: NDArray[np.uint64]) -> Records:
    """Of these threads, without any time yet."""
    rows = np.zeros(len(known), THREAD_TIME)
    rows["window_ns"] = window_ns
    for name in ("pid", "tid", "comm", "feeder"):
        rows[name] = known[name]
    rows["gil_ns"] = -1  # the agent knows where the lock is
    return rows


# Polls that span windows: held back until what ends them tells what they waited for.
#
# A minute is held at most. A poll that nothing came to for longer was sleep until then; otherwise
# a server that waits for days would be held back for days, second by second.


HELD_WINDOWS = 60


@dataclass(frozen=True, slots=True)
class LatePart:
    """A part of a poll, in the window it lies in."""

    key: Key
    window_ns: int
    bucket: int
    ns: int
    gap_ns: int = 0


@dataclass(slots=True)
class HeldPoll:
    windows: deque[tuple[int, int]] = field(default_factory=deque)  # (window, ns)
    told_ns: int = 0  # before those: told as sleep


class HeldPolls:
    """By thread."""

    def __init__(self) -> None:
        self._held: dict[Key, HeldPoll] = {}

    def update(
        self,
        keys: Sequence[Key],
        totals: Records,
        before_ns: Amounts,
        change: Amounts,
        gap_change: Amounts,
        window_ns: int,
    ) -> list[LatePart]:
        """Polls that ended, taken out of `change`; and the oldest part of those that last too long.

        A row of each for every thread; `before_ns`: when it was read last.
        """
        late: list[LatePart] = []
        since_ns = totals["now_ns"].astype(np.int64) - before_ns
        open_ns = totals["open_ns"].astype(np.int64)
        undecided = totals["undecided"] > 0
        still = undecided & (open_ns >= since_ns)
        for at in (
            [at for at, key in enumerate(keys) if key in self._held and not still[at]] if self._held else ()
        ):
            bucket = int(totals["spanned_bucket"][at])
            late.extend(self._ended(keys[at], bucket, change[at], gap_change[at]))
        for at in np.flatnonzero(undecided).tolist():
            held = self._held.setdefault(keys[at], HeldPoll())
            held.windows.append((window_ns, min(int(open_ns[at]), int(since_ns[at]))))
            if len(held.windows) > HELD_WINDOWS:
                late.append(self._sleep(keys[at], held))
        return late

    @staticmethod
    def _sleep(key: Key, held: HeldPoll) -> LatePart:
        window_ns, ns = held.windows.popleft()
        held.told_ns += ns
        return LatePart(key, window_ns, Bucket.SLEEP, ns)

    def _ended(self, key: Key, bucket: int, change: Amounts, gap_change: Amounts) -> Iterator[LatePart]:
        """Move its time into the windows it covered."""
        held = self._held.pop(key)
        told_ns = min(held.told_ns, int(change[bucket]))
        change[bucket] -= told_ns
        gap_change[bucket] -= min(told_ns, int(gap_change[bucket]))
        for window_ns, most_ns in held.windows:
            ns = min(most_ns, int(change[bucket]))
            gap_ns = min(ns, int(gap_change[bucket]))
            change[bucket] -= ns
            gap_change[bucket] -= gap_ns
            yield LatePart(key, window_ns, bucket, ns, gap_ns)

    def drop(self, keys: Set[Key], bucket: Bucket) -> list[LatePart]:
        """What is held of these threads, told as one bucket."""
        return [
            LatePart(key, window_ns, bucket, ns)
            for key in self._held.keys() & keys
            for window_ns, ns in self._held.pop(key).windows
        ]


# Which waits were for a Python interpreter's lock, and what they cost each thread.
#
# Python waits for its lock in turns of 5 ms, each a futex wait of its own. Waits below
# the recording threshold (1 ms) leave no record and are not in the sums.


Range = tuple[int, int]  # first address, end; empty: nothing in this process is such a lock


def mark_gil(window: Window, locks: Mapping[int, Range]) -> None:
    """Say it of the waits and threads of these processes; of others it stays unknown."""
    _mark_waits(window, locks)
    _sum_threads(window, locks)


def _mark_waits(window: Window, locks: Mapping[int, Range]) -> None:
    waits = window.waits
    futex = waits["bucket"] == Bucket.LOCK_WAIT
    for pid in np.unique(waits["h"]["pid"][futex]).tolist():
        if pid not in locks:
            continue
        start, end = locks[pid]
        mine = futex & (waits["h"]["pid"] == pid)
        inside = (waits["address"] >= start) & (waits["address"] < end)
        waits["gil"][mine] = np.where(inside[mine], GilMark.GIL_YES, GilMark.GIL_NO)


def _sum_threads(window: Window, locks: Mapping[int, Range]) -> None:
    threads, waits = window.threads, window.waits
    # Only threads that feed the GPU have wait records.
    known = np.isin(threads["pid"], list(locks)) & threads["feeder"]
    threads["gil_ns"] = np.where(known, 0, -1)
    waited = waits[waits["gil"] == GilMark.GIL_YES]
    now = known & (threads["window_ns"] == window.start_ns)
    for tid in np.unique(waited["h"]["tid"]).tolist():
        mine = waited[waited["h"]["tid"] == tid]
        blocked_ns = int(mine["duration_ns"].sum()) - int(mine["runqueue_ns"].sum())
        for at in np.flatnonzero(now & (threads["tid"] == tid))[:1]:
            threads["gil_ns"][at] = blocked_ns
