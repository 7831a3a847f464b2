"""Operations that were watched a part of the time, or timed a part of the times, as a whole.

What was seen stands for what was not: counts by the process's time on a core or by its calls
that are always watched, whichever they keep step with; lengths by the calls that were timed.
The last few windows are taken together, so that a window with one short look does not swing.
Counts that hold such a part are marked and carry how far they may be off; a count is exact
where every call was counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingero.governor.seen import OTHERWISE, TAKEN, Base, CallingPace, Steps, Watched
from ingero.model.layout import Bucket, CallFlag, Why
from ingero.model.window import OPERATION, Records

POOLED = 6  # windows
UNKNOWN_PACE = CallingPace(0.5, 1)
NO_BASE = Base(0, 0)
QUEUE_FULL_NS = 15_000  # a launch takes 2 to 8 us; longer, it waits for room in the GPU's queue
LEAST_CALL_NS = 200  # no call of the driver is shorter: more calls than that fit into no time
EDGES = 1.0  # steps: one that began before the window, one that ends after it
STOPPED = 30.0  # calls that a window should have shown: where it shows none, the job makes no more of them
STOPPED_SINCE = 0.5  # of the window: so long it may have gone on before, unseen
LEAST_CPU_NS = 2_000_000  # seen on a core: less says nothing of a rate
Key = tuple[int, int, int]


@dataclass(slots=True)
class Glimpse:
    """What one window showed of an operation."""

    calls: int
    inside: float  # of those, in the time that is known of
    cpu_ns: int  # the process was on a core meanwhile
    timed: np.void  # its row


@dataclass(slots=True)
class Pool:
    glimpses: deque[Glimpse] = field(default_factory=lambda: deque(maxlen=POOLED))

    def per_ns(self) -> float | None:
        """Of the process on a core; not known where it was hardly seen there."""
        cpu_ns = sum(each.cpu_ns for each in self.glimpses)
        return self._inside() / cpu_ns if cpu_ns >= LEAST_CPU_NS else None

    def per_ns_now(self) -> float | None:
        """The same of the last window alone."""
        last = self.glimpses[-1]
        return last.inside / last.cpu_ns if last.cpu_ns >= LEAST_CPU_NS else None

    def rests(self) -> bool:
        """When the process was last seen, it did not call it."""
        seen = [each for each in self.glimpses if each.cpu_ns >= LEAST_CPU_NS]
        return bool(seen) and not seen[-1].calls

    def has_stopped(self, per_ns: float) -> bool:
        last = self.glimpses[-1]
        return not last.calls and per_ns * last.cpu_ns >= STOPPED

    def calls(self) -> int:
        return sum(each.calls for each in self.glimpses)

    def _inside(self) -> float:
        return sum(each.inside for each in self.glimpses)

    def timed(self) -> int:
        return sum(int(each.timed["count"]) for each in self.glimpses)

    def sum(self, name: str) -> NDArray[np.float64]:
        total: NDArray[np.float64] = np.sum([each.timed[name] for each in self.glimpses], axis=0, dtype=float)
        return total


class Estimator:
    """Completes windows, one after the other."""

    def __init__(self) -> None:
        self._pools: dict[Key, Pool] = {}
        self._hidden: dict[int, list[float]] = {}  # by process: calls counted, their time on a core
        self._hidden_ns: dict[int, float] = {}
        self._owed: dict[Key, float] = {}  # calls that no record stands for yet

    def hidden_ns(self) -> dict[int, float]:
        """Time on a core inside a call that was counted and not timed, by process, when it was last seen."""
        self._hidden_ns |= {pid: ns / calls for pid, (calls, ns) in self._hidden.items() if calls}
        return self._hidden_ns

    def complete(self, rows: Records, watched: Watched | None) -> Records:
        self._hidden = {}
        if watched is None and not rows["untimed"].any():
            self._pools.clear()
            self._hidden_ns.clear()
            return rows
        by_key = {_key(row): row for row in rows}
        keys = [*by_key, *(key for key in self._pools if key not in by_key)] if watched else list(by_key)
        done = [self._one(key, by_key.get(key), watched) for key in keys]
        found = [row for row in done if row is not None]
        return np.array(found, OPERATION) if found else rows[:0]

    def weigh(self, calls: Records) -> None:
        """Records stand for calls that were not seen, too: the next sample of the operation does."""
        if not self._owed:
            return
        flags = calls["flags"]
        callers = np.where(
            flags & CallFlag.CALL_FROM_RUNTIME > 0, 1, np.where(flags & CallFlag.CALL_DIRECT > 0, 2, 0)
        )
        sampled = (calls["why"] & Why.WHY_SAMPLE) > 0
        for key, owed in list(self._owed.items()):
            pid, op, caller = key
            mine = np.flatnonzero(
                sampled & (calls["h"]["pid"] == pid) & (calls["op"] == op) & (callers == caller)
            )
            if len(mine):
                del self._owed[key]
                before = calls["weight"][mine].astype(np.float64)
                after = np.rint(np.cumsum(before) * (1 + owed / before.sum()))
                calls["weight"][mine] = np.minimum(np.diff(after, prepend=0.0), 2**32 - 1)

    def forget_pools(self) -> None:
        """What was seen so far says nothing of what comes, but for the last of it."""
        for pool in self._pools.values():
            pool.glimpses = deque(list(pool.glimpses)[-1:], maxlen=POOLED)

    def forget(self, pids: Iterable[int]) -> None:
        gone = set(pids)
        self._pools = {key: pool for key, pool in self._pools.items() if key[0] not in gone}
        self._owed = {key: owed for key, owed in self._owed.items() if key[0] not in gone}
        self._hidden_ns = {pid: ns for pid, ns in self._hidden_ns.items() if pid not in gone}

    def _one(self, key: Key, row: np.void | None, watched: Watched | None) -> np.void | None:
        governed = watched is not None and key[1] in watched.operations
        if row is not None and not governed and not row["untimed"]:
            self._pools.pop(key, None)
            return row
        if row is None and not governed:
            return None
        now = _nothing(key) if row is None else row
        calls = int(now["count"]) + int(now["untimed"])
        known_base = watched.bases.get(key[0]) if governed and watched else None
        base = known_base or NO_BASE
        pool = self._pools.setdefault(key, Pool())
        pool.glimpses.append(Glimpse(calls, calls * base.inside, base.cpu_ns, now.copy()))
        if not pool.calls():
            del self._pools[key]
            return None
        if timed := pool.timed():
            hidden = self._hidden.setdefault(key[0], [0.0, 0.0])
            hidden[0] += int(now["untimed"])
            hidden[1] += int(now["untimed"]) * float(pool.sum("split")[Bucket.CUDA_CPU]) / timed
        unseen, error = 0.0, 0.0
        if governed and watched is not None and watched.share < 1:
            pace = watched.paces.get(key[:2], UNKNOWN_PACE)
            seen = watched.steps.get((*key[:2], pace.anchor)) if pace.anchor is not None else None
            by_steps = _by_steps(pool, base, pace, seen, self._part(key, pool), calls)
            unseen, error = by_steps or _by_time(pool, known_base, pace, calls, watched.share)
        if unseen:
            self._owed[key] = self._owed.get(key, 0.0) + unseen
        return _whole(now, pool, calls, unseen, error)

    def _part(self, key: Key, pool: Pool) -> float:
        """Of the function's calls in this process, those by this caller."""
        others = [each for known, each in self._pools.items() if known[:2] == key[:2]]
        return pool.calls() / max(sum(each.calls() for each in others), 1)


def _by_steps(
    pool: Pool, base: Base, pace: CallingPace, seen: Steps | None, part: float, calls: int
) -> tuple[float, float] | None:
    """Calls made while nobody looked, and how far that may be off (95 %), by what they keep step with.

    `seen`: of the steps, those of this window.
    """
    if pace.anchor is None:
        return None
    per_call, now = pace.per_call, seen.calls / seen.always if seen and seen.always else None
    if not base.calls[pace.anchor] and (calls or not pool.rests()):
        return None  # something else calls it now, or may do so unseen
    # All of the window by steps, seen or not: so none counts in part, but at the window's ends.
    total = per_call * int(base.calls[pace.anchor])
    divided = 2 * total * (part * (1 - part) / max(pool.calls(), 1)) ** 0.5
    chance = _with_drift(pace.chance, per_call, now)
    return max(total * part - calls, 0.0), part * (total * chance + EDGES * per_call) + divided


def _with_drift(chance: float, usual: float, now: float | None) -> float:
    """How far off, relative: where a window shows another rate than those before it, that may be true."""
    drift = abs(now - usual) / usual if now is not None and usual else 0.0
    return chance + drift if drift > chance else chance


def _something_else(usual: float, now: float | None) -> bool:
    """A window in which calls were seen at quite another rate: those before it tell nothing of it."""
    return bool(now) and not usual / OTHERWISE <= float(now or 0) <= usual * OTHERWISE


def _by_time(
    pool: Pool, base: Base | None, pace: CallingPace, calls: int, share: float
) -> tuple[float, float]:
    """The same, by the process's time on a core."""
    per_ns = pool.per_ns()
    most = base.cpu_between_ns / LEAST_CALL_NS if base else float("inf")
    if per_ns is None or base is None:  # no more is known than for how long it was watched
        unseen = min(calls * (1 - share) / share if share else 0.0, most)
        return unseen, unseen
    if base.cpu_ns and _something_else(per_ns, pool.per_ns_now()):
        pool.glimpses = deque([pool.glimpses[-1]], maxlen=POOLED)
        per_ns = pool.per_ns() or per_ns
    # What watching takes of a core it has for itself between on-periods, unless it only waits on it.
    queue_full = pool.sum("split")[Bucket.CUDA_CPU] > QUEUE_FULL_NS * pool.timed()
    slowed = 0.0 if queue_full else TAKEN * min(pace.slowed, 0.5)
    unseen = min(per_ns * base.cpu_between_ns / (1 - slowed), most)
    unseen = max(unseen - calls * (1 - base.inside), 0.0)  # counted though not in the time that is known of
    if pool.has_stopped(per_ns):
        return 0.0, STOPPED_SINCE * unseen
    chance = (pace.chance**2 + 4 / max(pool.calls(), 1)) ** 0.5
    chance = _with_drift(chance, per_ns, pool.per_ns_now())
    return unseen, unseen * (chance + slowed / (1 - slowed / TAKEN))


def _whole(now: np.void, pool: Pool, calls: int, unseen: float, error: float) -> np.void:
    row: np.void = now.copy()
    count = calls + round(unseen)
    timed = pool.timed()
    row["count"], row["untimed"] = count, 0
    row["estimated"] = unseen > 0 or error > 0
    row["count_error"] = int(np.ceil(error))
    if not timed:
        return row
    weight = count / timed
    row["sum_ns"] = round(float(pool.sum("sum_ns")) * weight)
    row["errors"] = round(float(pool.sum("errors")) * weight)
    row["split"] = np.rint(pool.sum("split") * weight).astype(np.uint64)
    row["slots"] = spread_out(pool.sum("slots"), count)
    counted = pool.calls()
    if counted:  # bytes are known of calls that were only counted, too
        row["bytes"] = round(float(pool.sum("bytes")) * count / counted)
    known = [each.timed for each in pool.glimpses if each.timed["max_ns"]]
    if not row["max_ns"] and known:
        row["min_ns"] = min(int(each["min_ns"]) for each in known)
        row["max_ns"] = max(int(each["max_ns"]) for each in known)
    return row


def spread_out(slots: NDArray[np.float64], count: int) -> NDArray[np.uint32]:
    """A histogram of `count` calls in the shape of another; rounded so that none is lost."""
    total = slots.sum()
    if not total:
        return np.zeros(len(slots), np.uint32)
    upto = np.rint(np.cumsum(slots) * (count / total))
    found: NDArray[np.uint32] = np.minimum(np.diff(upto, prepend=0.0), 2**32 - 1).astype(np.uint32)
    return found


def _key(row: np.void) -> Key:
    return int(row["pid"]), int(row["op"]), int(row["caller"])


def _nothing(key: Key) -> np.void:
    row: np.void = np.zeros(1, OPERATION)[0]
    row["pid"], row["op"], row["caller"] = key
    return row
