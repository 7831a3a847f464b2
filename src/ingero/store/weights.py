"""Makes the records of an operation stand for every call of it that was counted, no more and no fewer.

A record's weight is how many calls it stands for. Calls after the last sample, those that were only
estimated, and those whose record was lost have none: when their process or the recording ends they are
put on the records there are, so that SUM(weight) and the count in `operations` are the same number.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from ingero.model.layout import CallFlag
from ingero.model.window import Records, Window

Key = tuple[int, int, int]  # pid, operation, caller
REACH = 50_000  # records looked through for those of an operation
FEW = 0.01  # of the calls: so many may stand on one record
_MINE = (
    "SELECT id, weight FROM event WHERE id BETWEEN ?1 - ?5 AND ?1 AND pid = ?2 AND op_id = ?3"
    " AND CASE WHEN flags & 2 THEN 1 WHEN flags & 4 THEN 2 ELSE 0 END = ?4"
)


def callers(calls: Records) -> NDArray[np.int64]:
    """0 unknown, 1 runtime, 2 direct."""
    flags = calls["flags"].astype(np.int64)
    runtime = flags & int(CallFlag.CALL_FROM_RUNTIME) > 0
    return np.where(runtime, 1, np.where(flags & int(CallFlag.CALL_DIRECT) > 0, 2, 0))


class Weights:
    """Of one recording. What is added here is stored already."""

    def __init__(self, last_ids: dict[Key, int]) -> None:
        self._last_ids = last_ids  # of the last record of each
        self._calls: dict[Key, int] = {}
        self._owed: dict[Key, int] = {}  # calls that no record stands for; below 0: too many do
        self._ended: set[int] = set()
        self._ending: set[int] = set()  # in the last window: the next may have counts of them

    def add(self, window: Window, known: NDArray[np.bool_]) -> None:
        """A window that is stored; `known`: which of its calls became records."""
        for row in window.operations:
            key = int(row["pid"]), int(row["op"]), int(row["caller"])
            self._calls[key] = self._calls.get(key, 0) + int(row["count"])
            self._owe(key, int(row["count"]))
        for row in window.unsampled:
            key = int(row["pid"]), int(row["op"]), int(row["caller"])
            if key in self._last_ids:
                self._owe(key, -int(row["calls"]))
        calls = window.calls[known]
        numbers = (
            calls["h"]["pid"].astype(np.int64) << 20 | calls["op"].astype(np.int64) << 2 | callers(calls)
        )
        distinct, inverse = np.unique(numbers, return_inverse=True)
        for number, weight in zip(
            distinct.tolist(), np.bincount(inverse, calls["weight"], len(distinct)).tolist(), strict=True
        ):
            self._owe((number >> 20, number >> 2 & 0x3FFFF, number & 3), -round(weight))
        self._ending |= {each.pid for each in window.processes if each.end_ns is not None}

    def _owe(self, key: Key, calls: int) -> None:
        self._owed[key] = self._owed.get(key, 0) + calls

    def take_ended(self) -> set[int]:
        """Processes whose last counts have been added."""
        ended, self._ended, self._ending = self._ended, self._ending, set()
        return ended

    def ended_again(self, pids: Collection[int]) -> None:
        """What was to be done for them was not."""
        self._ended |= set(pids)

    def settle(
        self, connection: sqlite3.Connection, op_ids: NDArray[np.int64], pids: Collection[int] | None = None
    ) -> None:
        """Within the open transaction, for these processes or all; `forget` when it is committed."""
        for key, owed in self._owed.items():
            if not owed or not self._calls.get(key) or (pids is not None and key[0] not in pids):
                continue
            last = self._last_ids.get(key)
            if last is None:
                continue
            if abs(owed) <= max(FEW * self._calls[key], 1):
                mine = connection.execute("SELECT id, weight FROM event WHERE id = ?", (last,)).fetchall()
            else:
                mine = connection.execute(
                    _MINE, (last, key[0], int(op_ids[key[1]]), key[2], REACH)
                ).fetchall()
            connection.executemany(
                "UPDATE event SET weight = ? WHERE id = ?",
                zip(_spread([row[1] for row in mine], owed), [row[0] for row in mine], strict=True),
            )

    def forget(self, pids: Collection[int]) -> None:
        for book in (self._calls, self._owed, self._last_ids):
            for key in [key for key in book if key[0] in pids]:
                del book[key]


def _spread(weights: list[int], owed: int) -> list[int]:
    """More or fewer calls on the same records, in proportion; each stands for one at least."""
    before = np.maximum(np.array(weights, np.float64), 1.0)
    if not len(before):
        return []
    after = np.rint(np.cumsum(before) * max(1 + owed / before.sum(), 0.0))
    return [max(int(each), 1) for each in np.diff(after, prepend=0.0)]
