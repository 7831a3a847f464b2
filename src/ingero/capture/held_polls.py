"""Polls that span windows: held back until what ends them tells what they waited for.

A minute is held at most. A poll that nothing came to for longer was sleep until then; otherwise
a server that waits for days would be held back for days, second by second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingero.model.layout import Bucket
from ingero.model.window import Records

HELD_WINDOWS = 60

Key = tuple[int, int]
Amounts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Late:
    """A part of a poll, in the window it lies in."""

    key: Key
    window_ns: int
    bucket: int
    ns: int
    gap_ns: int = 0


@dataclass(slots=True)
class Held:
    windows: deque[tuple[int, int]] = field(default_factory=deque)  # (window, ns)
    told_ns: int = 0  # before those: told as sleep


class HeldPolls:
    """By thread."""

    def __init__(self) -> None:
        self._held: dict[Key, Held] = {}

    def update(
        self,
        keys: Sequence[Key],
        totals: Records,
        before_ns: Amounts,
        change: Amounts,
        gap_change: Amounts,
        window_ns: int,
    ) -> list[Late]:
        """Polls that ended, taken out of `change`; and the oldest part of those that last too long.

        A row of each for every thread; `before_ns`: when it was read last.
        """
        late: list[Late] = []
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
            held = self._held.setdefault(keys[at], Held())
            held.windows.append((window_ns, min(int(open_ns[at]), int(since_ns[at]))))
            if len(held.windows) > HELD_WINDOWS:
                late.append(self._sleep(keys[at], held))
        return late

    @staticmethod
    def _sleep(key: Key, held: Held) -> Late:
        window_ns, ns = held.windows.popleft()
        held.told_ns += ns
        return Late(key, window_ns, Bucket.SLEEP, ns)

    def _ended(self, key: Key, bucket: int, change: Amounts, gap_change: Amounts) -> Iterator[Late]:
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
            yield Late(key, window_ns, bucket, ns, gap_ns)

    def drop(self, keys: Set[Key], bucket: Bucket) -> list[Late]:
        """What is held of these threads, told as one bucket."""
        return [
            Late(key, window_ns, bucket, ns)
            for key in self._held.keys() & keys
            for window_ns, ns in self._held.pop(key).windows
        ]
