"""Which waits were for a Python interpreter's lock, and what they cost each thread.

Python waits for its lock in turns of 5 ms, each a futex wait of its own. Waits below
the recording threshold (1 ms) leave no record and are not in the sums.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ingero.model.layout import Bucket, GilMark
from ingero.model.window import Window

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
