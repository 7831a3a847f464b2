"""The longest single wait of each process, and why it waited.

Waiting for the GPU is what a healthy job does, and sleep is wanted: neither is a
stall. Where a process has threads that feed the GPU, only theirs count: a helper
thread that idles for a minute stalls nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingero.model.report import Stall
from ingero.model.window import BUCKET_NAMES
from ingero.model.words import bucket_words
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.units import SECOND, clean, format_ns

NO_STALL = ("gpu_wait", "sleep")
WORTH_SAYING = 0.05  # of the wait: what it waited for a core at its end
_WAKERS = {2: "a timer", 3: "the disk", 4: "the network", 5: "an interrupt"}
# One pass over the events finds the longest of each thread; only those are looked up in detail.
_LONGEST = """
    SELECT e.process_id, e.tid, e.ts_ns, e.duration_ns, w.bucket, w.runqueue_ns, w.waker_kind,
        w.waker_pid, s.text, o.name, w.throttled
    FROM (
        SELECT id, MAX(duration_ns) FROM event
        WHERE id BETWEEN ? AND ? AND ts_ns >= ? AND ts_ns < ? AND op_id IN (@OPS@)
        GROUP BY process_id, tid
    ) longest
    CROSS JOIN event e ON e.id = longest.id
    CROSS JOIN wait_detail w ON w.event_id = e.id
    LEFT JOIN string s ON s.id = w.waker_id
    LEFT JOIN op o ON o.id = w.call_op_id"""
_WAIT_OPS = "SELECT id, name FROM op WHERE layer = 'host'"
_HUNG = """
    SELECT f.process_id, f.tid, f.since_ns, f.last_seen_ns - f.since_ns, f.bucket, o.name
    FROM in_flight f
    JOIN op o ON o.id = f.op_id
    WHERE f.last_seen_ns >= ? AND f.since_ns < ? AND f.last_seen_ns - f.since_ns >= ?"""
_RAN = """
    SELECT s.text, c.pid, SUM(c.ns)
    FROM culprit c
    LEFT JOIN string s ON s.id = c.comm_id
    WHERE c.start_ns > ? AND c.start_ns <= ? AND c.victim_tid = ? AND c.throttled = 0
    GROUP BY c.pid, c.comm_id ORDER BY 3 DESC LIMIT 2"""


def worst_stalls(
    reader: Reader, wanted: TimeRange, feeders: Mapping[int, frozenset[int]]
) -> dict[int, Stall]:
    """By process; `feeders` are each process's threads that feed the GPU."""
    found: dict[int, tuple[int, Any]] = {}
    for process_id, tid, stall in [*_waits(reader, wanted), *_hung(reader, wanted)]:
        own = feeders.get(process_id)
        if (not own or tid in own) and (process_id not in found or stall.ns > found[process_id][1].ns):
            found[process_id] = (tid, stall)
    return {process_id: _with_culprits(reader, tid, stall) for process_id, (tid, stall) in found.items()}


def _waits(reader: Reader, wanted: TimeRange) -> list[tuple[int, int, Stall]]:
    stalls = set(BUCKET_NAMES) - set(NO_STALL)
    ops = ", ".join(str(number) for number, name in reader.rows(_WAIT_OPS) if name in stalls)
    sql = _LONGEST.replace("@OPS@", ops)
    rows = [
        row
        for first, last in reader.id_ranges(wanted.from_ns, wanted.to_ns)
        for row in reader.rows(sql, (first, last, wanted.from_ns, wanted.to_ns))
    ]
    return [
        (row[0], row[1], Stall(row[2], row[3], _bucket(row[4]), _why(row)))
        for row in rows
        if row[0] is not None and row[3] is not None
    ]


def _why(row: tuple[Any, ...]) -> str:
    _, _, _, ns, bucket, runqueue_ns, waker_kind, waker_pid, waker, call, throttled = row
    words = bucket_words(_bucket(bucket)) + (f" inside {clean(call)}" if call else "")
    if throttled:
        words += ", held back by its CPU quota"
    if waker_kind in _WAKERS:
        words += f"; {_WAKERS[waker_kind]} ended it"
    elif waker is not None and waker_pid:
        how = "released it" if _bucket(bucket) == "lock_wait" else "ended it"
        words += f"; {clean(waker, 40)} ({waker_pid}) {how}"
    if runqueue_ns and WORTH_SAYING * ns <= runqueue_ns < ns:
        words += f", then it waited {format_ns(runqueue_ns)} for a core"
    return words


def _hung(reader: Reader, wanted: TimeRange) -> list[tuple[int, int, Stall]]:
    """Calls that had not returned when last looked at."""
    rows = reader.rows(_HUNG, (wanted.from_ns, wanted.to_ns, SECOND))
    return [
        (
            process_id,
            tid,
            Stall(
                since_ns, ns, _bucket(bucket), f"{bucket_words(_bucket(bucket))} in {clean(op)}, not returned"
            ),
        )
        for process_id, tid, since_ns, ns, bucket, op in rows
        if process_id is not None
    ]


def _with_culprits(reader: Reader, tid: int, stall: Stall) -> Stall:
    if stall.bucket != "runqueue":
        return stall
    # Culprits are kept by the second: those of the seconds the wait lay in.
    rows = reader.rows(_RAN, (stall.at_ns - SECOND, stall.at_ns + stall.ns, tid))
    ran = " and ".join(f"{clean(comm or '?', 40)} ({pid})" for comm, pid, _ in rows if pid)
    return Stall(stall.at_ns, stall.ns, stall.bucket, f"{stall.text}, while {ran} ran") if ran else stall


def _bucket(number: int) -> str:
    return BUCKET_NAMES[number] if 0 <= number < len(BUCKET_NAMES) else "unexplained"
