"""Where calls, waits and samples come from, read from the database.

Bounded: of a long stretch with many rows, evenly spread parts are read and what they
say is scaled to the whole. Which line costs most does not depend on every row, and an
hour is answered as quickly as five minutes. The same stretch gives the same answer.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ingero.model import sites as model
from ingero.model.layout import CallFlag, SampleFlag, Why
from ingero.model.sites import Sites
from ingero.model.stack import Frame
from ingero.model.window import Records
from ingero.store.schema import NODE_SHIFT, SEQ_MASK

MOST_ROWS = 60_000  # read for one question
PARTS = 50
LATEST_ROWS = 1_000_000  # looked through for a process's last call
MAX_FRAMES = 256


def _whole(*columns: str) -> str:
    """Whole numbers, 0 for NULL."""
    return ", ".join(f"CAST(COALESCE({column}, 0) AS INTEGER)" for column in columns)


_FAILED = f"e.why & {int(Why.WHY_ERROR)}"  # it took and moved nothing; NULL: not known, so it did not
_OUTERMOST = f"e.flags & {int(CallFlag.CALL_NESTED)} = 0"  # and with NULL flags no call at all
# The file may come from anybody, and SQLite takes text for a number: every column is made one.
_CALLS = f"""
    SELECT {_whole("e.pid", "e.tid", "e.op_id", "e.stack_hash")}, TOTAL(e.weight),
        TOTAL(1.0 * e.duration_ns * e.weight), TOTAL(IIF({_FAILED}, 0.0, 1.0 * e.bytes * e.weight))
    FROM event e
    WHERE e.id BETWEEN ? AND ? AND e.ts_ns >= ? AND e.ts_ns < ? AND {_OUTERMOST}@PID@
    GROUP BY 1, 2, 3, 4"""
# What was spent waiting for a core at the end of another wait is no part of that one.
_WAITS = f"""
    SELECT {_whole("e.pid", "e.tid", "w.bucket", "w.call_op_id", "w.gil", "w.holder_tid", "e.stack_hash")},
        COUNT(*), TOTAL(e.duration_ns - CASE WHEN e.duration_ns > w.runqueue_ns THEN w.runqueue_ns ELSE 0 END)
    FROM wait_detail w
    CROSS JOIN event e ON e.id = w.event_id
    WHERE w.event_id BETWEEN ? AND ? AND e.ts_ns >= ? AND e.ts_ns < ?@PID@
    GROUP BY 1, 2, 3, 4, 5, 6, 7"""
_SAMPLES = f"""
    SELECT {_whole("e.pid", "e.tid", "e.bucket", "e.op_id", "e.flags", "e.stack_hash")}, TOTAL(e.count)
    FROM thread_sample e
    WHERE e.id BETWEEN ? AND ? AND e.start_ns >= ? AND e.start_ns < ? AND e.node_id = @NODE@@PID@
    GROUP BY 1, 2, 3, 4, 5, 6"""
_BY_SECOND = f"""
    SELECT {_whole("start_ns", "tid", "stack_hash")}, TOTAL(count)
    FROM thread_sample
    WHERE start_ns >= ? AND start_ns < ? AND node_id = ? AND pid = ?
    GROUP BY 1, 2, 3
    LIMIT {MOST_ROWS}"""
_COLLECTING = f"""
    SELECT {_whole("start_ns", "tid")}, 0, TOTAL(count)
    FROM thread_sample
    WHERE start_ns >= ? AND start_ns < ? AND node_id = ? AND pid = ?
        AND flags & {int(SampleFlag.SAMPLE_COLLECTING)}
    GROUP BY 1, 2
    LIMIT {MOST_ROWS}"""
_MEMORY = f"""
    SELECT o.kind = 'alloc', {
    _whole("CASE o.kind WHEN 'alloc' THEN e.out ELSE e.arg0 END", "e.bytes", "e.stack_hash")
}
    FROM event e
    JOIN op o ON o.id = e.op_id AND o.kind IN ('alloc', 'free')
    WHERE e.id BETWEEN ? AND ? AND e.ts_ns >= ? AND e.ts_ns < ? AND e.pid = ? AND {_OUTERMOST}
        AND e.ret = 0
    ORDER BY e.id DESC
    LIMIT {MOST_ROWS}"""
_FRAMES = """
    SELECT f.id, CAST(f.kind AS TEXT), CAST(a.text AS TEXT), CAST(c.text AS TEXT),
        CAST(NULLIF(f.line, 0) AS INTEGER), CAST(m.text AS TEXT)
    FROM frame f
    LEFT JOIN frame_text a ON a.id = f.function_id
    LEFT JOIN frame_text c ON c.id = f.file_id
    LEFT JOIN frame_text m ON m.id = f.module_id
    WHERE f.id IN (@IDS@)"""
Row = tuple[Any, ...]


class SiteReader(Sites):
    """Asks about one node; answers are kept, because several findings ask the same."""

    def __init__(self, connection: sqlite3.Connection, node_id: int) -> None:
        self._connection = connection
        self._node = node_id
        self._answers: dict[tuple[Any, ...], Records] = {}
        self._frames: dict[int, Frame] = {}
        self._stacks: dict[int, tuple[Frame, ...]] = {}

    def calls(self, pid: int | None, from_ns: int, to_ns: int) -> Records:
        return self._answer(_CALLS, model.CALL_SITES, 4, pid, from_ns, to_ns)

    def waits(self, pid: int | None, from_ns: int, to_ns: int) -> Records:
        return self._answer(_WAITS, model.WAIT_SITES, 7, pid, from_ns, to_ns)

    def samples(self, pid: int | None, from_ns: int, to_ns: int) -> Records:
        return self._answer(_SAMPLES, model.SAMPLE_SITES, 6, pid, from_ns, to_ns)

    def samples_by_second(self, pid: int, from_ns: int, to_ns: int) -> Records:
        rows = self._connection.execute(_BY_SECOND, (from_ns, to_ns, self._node, pid)).fetchall()
        return np.array(rows, model.SECOND_SITES)

    def collecting(self, pid: int, from_ns: int, to_ns: int) -> Records:
        rows = self._connection.execute(_COLLECTING, (from_ns, to_ns, self._node, pid)).fetchall()
        return np.array(rows, model.SECOND_SITES)

    def _answer(
        self, sql: str, dtype: np.dtype[np.void], keys: int, pid: int | None, from_ns: int, to_ns: int
    ) -> Records:
        asked = (sql, pid, from_ns, to_ns)
        known = self._answers.get(asked)
        if known is None:
            known = self._answers[asked] = self._read(sql, dtype, keys, pid, from_ns, to_ns)
        return known

    def _read(
        self, sql: str, dtype: np.dtype[np.void], keys: int, pid: int | None, from_ns: int, to_ns: int
    ) -> Records:
        sql = sql.replace("@PID@", "" if pid is None else f" AND e.pid = {int(pid)}")
        sql = sql.replace("@NODE@", str(self._node))
        ids = self._sample_ids(from_ns, to_ns) if sql.find("thread_sample") > 0 else self._ids(from_ns, to_ns)
        parts = list(_spread(*ids))
        found: list[Row] = []
        for first, last in parts:
            found.extend(self._connection.execute(sql, (first, last, from_ns, to_ns)))
        rows = np.array(found, dtype)  # the same keys may come from several parts: readers sum anyway
        read = sum(last - first + 1 for first, last in parts)
        for column in dtype.names[keys:] if dtype.names and read else ():
            rows[column] *= (ids[1] - ids[0] + 1) / read
        return rows

    def _ids(self, from_ns: int, to_ns: int) -> tuple[int, int]:
        """Which events lie in a stretch of time; the first is larger than the last where none do."""
        first, last = self._connection.execute(
            "SELECT MIN(first_id), MAX(last_id) FROM window"
            " WHERE node_id = ? AND end_ns > ? AND start_ns < ?",
            (self._node, from_ns, to_ns),
        ).fetchone()
        return (1, 0) if first is None else (first, last)

    def _sample_ids(self, from_ns: int, to_ns: int) -> tuple[int, int]:
        # Two look-ups in the index: rows are written in order of time.
        between = "FROM thread_sample WHERE start_ns >= ? AND start_ns < ? ORDER BY start_ns"
        first = self._connection.execute(f"SELECT id {between} LIMIT 1", (from_ns, to_ns)).fetchone()
        last = self._connection.execute(
            f"SELECT id {between} DESC, id DESC LIMIT 1", (from_ns, to_ns)
        ).fetchone()
        return (first[0], last[0]) if first else (1, 0)

    def kept(self, pid: int, from_ns: int, to_ns: int) -> Records:
        rows = self._connection.execute(_MEMORY, (*self._ids(from_ns, to_ns), from_ns, to_ns, pid)).fetchall()
        settled: set[int] = set()  # addresses whose last word was said: rows come newest first
        sums: dict[int, list[int]] = {}
        for allocated, address, size, stack in rows:
            if not address or address in settled:
                continue
            settled.add(address)
            if allocated:
                one = sums.setdefault(stack, [0, 0])
                one[0] += 1
                one[1] += size
        found = np.zeros(len(sums), model.KEPT_SITES)
        for at, (stack, (count, size)) in enumerate(sums.items()):
            found[at] = (stack, count, size)
        return found

    def last_call(self, pid: int, ops: Iterable[int], to_ns: int) -> int:
        last = self._ids(0, to_ns)[1]
        numbers = ", ".join(str(int(op)) for op in ops) or "NULL"
        row = self._connection.execute(
            f"SELECT stack_hash FROM event WHERE id BETWEEN ? AND ? AND pid = ? AND op_id IN ({numbers})"
            " AND ts_ns < ? ORDER BY id DESC LIMIT 1",
            (last - LATEST_ROWS, last, pid, to_ns),
        ).fetchone()
        return row[0] if row and isinstance(row[0], int) else 0

    def of_event(self, event_id: str) -> int:
        number = event_id.rpartition(":")[2]
        if not number.isdecimal() or int(number) > SEQ_MASK:
            return 0
        row = self._connection.execute(
            "SELECT stack_hash FROM event WHERE id = ?", ((self._node << NODE_SHIFT) + int(number),)
        ).fetchone()
        return row[0] if row and isinstance(row[0], int) else 0

    def stacks(self, hashes: Iterable[int]) -> dict[int, tuple[Frame, ...]]:
        wanted = [int(number) for number in hashes]
        for part in _batches([number for number in wanted if number not in self._stacks]):
            listed = dict(self._listed(part))
            self._learn({frame for numbers in listed.values() for frame in numbers} - self._frames.keys())
            for number, numbers in listed.items():
                self._stacks[number] = tuple(self._frames[each] for each in numbers if each in self._frames)
        return {number: self._stacks[number] for number in wanted if number in self._stacks}

    def _listed(self, part: list[int]) -> Iterator[tuple[int, list[int]]]:
        marks = ", ".join("?" * len(part))
        for number, text in self._connection.execute(
            f"SELECT hash, frames FROM stack WHERE hash IN ({marks})", part
        ):
            yield number, _numbers(text)

    def _learn(self, numbers: set[int]) -> None:
        for part in _batches(sorted(numbers)):
            marks = ", ".join("?" * len(part))
            for number, *texts in self._connection.execute(_FRAMES.replace("@IDS@", marks), part):
                kind, function, file, line, module = texts
                self._frames[number] = Frame(kind, function or "", file, line, module)


def _numbers(text: Any) -> list[int]:
    """A stack's frames; what cannot be read is no frame."""
    try:
        frames = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return []
    return [each for each in frames[:MAX_FRAMES] if isinstance(each, int)] if isinstance(frames, list) else []


def _spread(first: int, last: int) -> Iterator[tuple[int, int]]:
    """All of it, or evenly spread parts that come to the most one question may read."""
    count = last - first + 1
    if count <= MOST_ROWS:
        if count > 0:
            yield first, last
        return
    size = MOST_ROWS // PARTS
    for part in range(PARTS):
        start = first + (count - size) * part // (PARTS - 1)
        yield start, start + size - 1


def _batches(numbers: list[int], size: int = 500) -> Iterator[list[int]]:
    for at in range(0, len(numbers), size):
        yield numbers[at : at + size]
