"""Keeping the database below its size: oldest detail goes first, findings last.

Each call does a bounded amount of work, so that a trace never pauses for it; a
database far above its limit shrinks over many calls. Freed pages are used again
by new rows, and given back to the file system only while the file is too large.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ingero.store.schema import NODE_SHIFT
from ingero.store.stack_rows import drop_uncited, drop_unused_frames
from ingero.units import HOUR, MINUTE, SECOND

ROWS_PER_CALL = 40_000
PAGES_PER_CALL = 2_000
STACKS_PER_CALL = 2_000
PARTS = 10  # at most a tenth of what there is goes at once: a small database shall not lose all
_DETAIL = ("wait_detail", "block_detail", "tcp_detail", "xid_detail", "collective")
_SECONDS = (
    ("operation_second", "start_ns"), ("thread_second", "start_ns"), ("culprit", "start_ns"),
    ("waker", "start_ns"), ("io_second", "start_ns"), ("thread_sample", "start_ns"),
    ("thread_estimate", "start_ns"), ("overhead_second", "start_ns"),
    ("switch_second", "start_ns"), ("annotation", "start_ns"),
    ("system_sample", "at_ns"), ("gpu_sample", "at_ns"), ("gpu_process", "at_ns"), ("window", "start_ns"),
)  # fmt: skip
_MINUTES = (
    ("operation_minute", "start_ns"), ("loss", "end_ns"), ("clock_step", "at_ns"), ("process", "end_ns"),
    ("not_watched", "at_ns"), ("pod_event", "at_ns"),
    ("governor_action", "at_ns"), ("in_flight", "last_seen_ns"),
)  # fmt: skip


@dataclass(slots=True)
class Retention:
    """Trims one database; max_bytes 0 means no limit."""

    connection: sqlite3.Connection
    max_bytes: int
    recording_id: int
    node_id: int
    forget: Callable[[], None] = lambda: None  # told when rows that somebody may remember are gone
    _stacks_gone: int = 0  # since frames were last looked through

    def set_up(self) -> None:
        """Bound the write-ahead log too: it is part of what the user sees on disk."""
        limit = min(self.max_bytes // 10, 32 << 20) if self.max_bytes else 32 << 20
        page_size = self._pragma("page_size")
        self.connection.execute(f"PRAGMA journal_size_limit = {limit}")
        self.connection.execute(f"PRAGMA wal_autocheckpoint = {max(16, min(1000, limit // page_size // 2))}")

    def _pragma(self, name: str) -> int:
        return int(self.connection.execute(f"PRAGMA {name}").fetchone()[0])

    def trim(self, newest_ns: int) -> int:
        """Delete the oldest rows if the file is near its limit; returns how many went."""
        if not self.max_bytes:
            return 0
        deleted = 0
        while deleted < ROWS_PER_CALL and self._used_bytes() > self.max_bytes * 0.80:
            gone = self._delete_oldest(newest_ns)
            if not gone:
                break
            deleted += gone
        if deleted:
            self._delete_stacks()
        if self._pragma("page_count") * self._pragma("page_size") > self.max_bytes * 0.88:
            # It returns an empty row per page: execute() stops after the first, executescript() does not.
            self.connection.executescript(f"PRAGMA incremental_vacuum({PAGES_PER_CALL})")
        return deleted

    def _used_bytes(self) -> int:
        pages = self._pragma("page_count") - self._pragma("freelist_count")
        return pages * self._pragma("page_size")

    def _delete_oldest(self, newest_ns: int) -> int:
        steps: tuple[tuple[Callable[[int], int], int], ...] = (
            (self._delete_detail, 5 * MINUTE),
            (self._delete_seconds, HOUR),
            (self._delete_detail, 0),
            (self._delete_seconds, 0),
            (self._delete_minutes, 0),
            (self._delete_findings, 0),
        )
        with self._transaction():
            return next(filter(None, (delete(newest_ns - keep_ns) for delete, keep_ns in steps)), 0)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def _delete_stacks(self) -> None:
        """Stacks nobody cites any more, and their frames once half of the stacks are gone.

        Looking through all frames costs as much as there are stacks, so it is done rarely.
        """
        with self._transaction():
            gone = drop_uncited(self.connection, STACKS_PER_CALL)
            self._stacks_gone += gone
            left = self.connection.execute("SELECT COUNT(*) FROM stack").fetchone()[0] if gone else 0
            if gone and self._stacks_gone >= left:
                drop_unused_frames(self.connection)
                self._stacks_gone = 0
        if gone:
            self.forget()

    def _delete_detail(self, before_ns: int) -> int:
        for node_id, last_id in self._detail_limits(before_ns):
            oldest = self.connection.execute(
                "SELECT MIN(id) FROM event WHERE id BETWEEN ? AND ?", (node_id << NODE_SHIFT, last_id)
            ).fetchone()[0]
            if oldest is not None:
                rows = min(ROWS_PER_CALL, max(ROWS_PER_CALL // 40, (last_id - oldest) // PARTS))
                return self._delete_events(oldest, min(oldest + rows, last_id + 1))
        return 0

    def _delete_events(self, first_id: int, end_id: int) -> int:
        oldest = self.connection.execute(
            "SELECT ts_ns FROM event WHERE id >= ? ORDER BY id LIMIT 1", (end_id,)
        )
        kept_from = oldest.fetchone()
        deleted = self.connection.execute(
            "DELETE FROM event WHERE id >= ? AND id < ?", (first_id, end_id)
        ).rowcount
        for table in _DETAIL:
            self.connection.execute(
                f"DELETE FROM {table} WHERE event_id >= ? AND event_id < ?", (first_id, end_id)
            )
        if kept_from:
            self.connection.execute(
                "DELETE FROM collective_round WHERE last_ns < ?", (kept_from[0] - MINUTE,)
            )
        return deleted

    def _detail_limits(self, before_ns: int) -> list[tuple[int, int]]:
        """Up to which id each node's detail is older than this: other nodes' rows are older recordings."""
        nodes = self.connection.execute("SELECT id FROM node WHERE id <> ?", (self.node_id,)).fetchall()
        limits = [(node, ((node + 1) << NODE_SHIFT) - 1) for (node,) in nodes]
        window = self.connection.execute(
            "SELECT last_id FROM window WHERE recording_id = ? AND start_ns < ?"
            " ORDER BY start_ns DESC LIMIT 1",
            (self.recording_id, before_ns),
        ).fetchone()
        if window is None:  # nothing of this recording is that old, but all of earlier ones is
            window = self.connection.execute(
                "SELECT first_id - 1 FROM window WHERE recording_id = ? ORDER BY start_ns LIMIT 1",
                (self.recording_id,),
            ).fetchone()
        return [*limits, (self.node_id, window[0])] if window else limits

    def _delete_seconds(self, before_ns: int) -> int:
        budget = ROWS_PER_CALL // len(_SECONDS)
        return sum(self._delete_before(table, column, before_ns, budget) for table, column in _SECONDS)

    def _delete_minutes(self, before_ns: int) -> int:
        budget = ROWS_PER_CALL // len(_MINUTES) // 4
        aggregates = sum(self._delete_before(table, column, before_ns, budget) for table, column in _MINUTES)
        return aggregates + self._delete_bystanders(before_ns, budget)

    def _delete_bystanders(self, before_ns: int, budget: int) -> int:
        """Nobody saw them end, so they go by when they began."""
        return self.connection.execute(
            "DELETE FROM process WHERE id IN (SELECT id FROM process"
            " WHERE NOT target AND first_seen_ns < ? ORDER BY first_seen_ns LIMIT ?)",
            (before_ns, budget),
        ).rowcount

    def _delete_before(self, table: str, column: str, before_ns: int, budget: int) -> int:
        oldest_ns = self.connection.execute(f"SELECT MIN({column}) FROM {table}").fetchone()[0]
        if oldest_ns is None or oldest_ns >= before_ns:
            return 0
        before_ns = min(before_ns, oldest_ns + max((before_ns - oldest_ns) // PARTS, SECOND))
        past = self.connection.execute(
            f"SELECT {column} FROM {table} WHERE {column} < ? ORDER BY {column} LIMIT 1 OFFSET ?",
            (before_ns, budget),
        ).fetchone()
        end_ns = past[0] + 1 if past else before_ns
        unrolled = (
            " AND id <= (SELECT rolled_id FROM node WHERE node.id = node_id)"
            if table == "operation_second"
            else ""
        )
        return self.connection.execute(
            f"DELETE FROM {table} WHERE {column} < ?{unrolled}", (end_ns,)
        ).rowcount

    def _delete_findings(self, before_ns: int) -> int:
        return self.connection.execute(
            "DELETE FROM finding WHERE id IN"
            " (SELECT id FROM finding WHERE last_ns < ? ORDER BY last_ns LIMIT 100)",
            (before_ns,),
        ).rowcount


# Disk space kept for the end of a recording.
#
# A disk that is full when a trace ends would take the last word too: what was lost, and what was found.
# So a nameless file beside the database holds some space until then. The kernel frees it with the
# process, however that ends; where there is little room to begin with, none is held.


BYTES = 1 << 20  # the last transaction writes some twenty pages, twice
LEAST_FREE = 3 * BYTES


class Reserve:
    """Held while the recording runs, and let go once."""

    def __init__(self, folder: Path, size: int = BYTES) -> None:
        self._handle = _held(folder, size)

    def release(self) -> bool:
        """Whether there is now more room than before."""
        handle, self._handle = self._handle, None
        if handle is None:
            return False
        with contextlib.suppress(OSError):
            os.close(handle)
        return True


def _held(folder: Path, size: int) -> int | None:
    """None where there is little room, or no nameless files are made."""
    handle = None
    try:
        room = os.statvfs(folder)
        if room.f_bavail * room.f_frsize < LEAST_FREE:
            return None
        handle = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(handle, 0, size)
    except OSError:
        if handle is not None:
            os.close(handle)
        return None
    return handle
