"""The one writer of a recording, which no trouble of the disk can stop.

A window that cannot be stored waits in a short backlog, the status says what is
wrong, and what had to be given up is counted and stored as a loss once writing
works again, or at the end in space that is kept for it. Only opening the database raises.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ingero import rights
from ingero.clock import Clock
from ingero.errors import StoreError
from ingero.model.facts import Facts
from ingero.model.operations import Operation
from ingero.model.stack import ResolvedStack
from ingero.model.window import Window
from ingero.store import location, opening
from ingero.store.findings import FindingChanges, FindingRow
from ingero.store.opening import open_as_it_lies
from ingero.store.recording import Loss, Recording, connect
from ingero.store.retention import Reserve, Retention
from ingero.store.soundness import STUMBLES, Meddling
from ingero.units import clean

BUSY_MS = 100
BACKLOG_WINDOWS = 30
BACKLOG_BYTES = 64 << 20
BACKLOG_LOSS = "store_backlog"
DAMAGED = "another program damaged the database: what was recorded cannot be read again"
CARRIED_STACKS = 20_000
_ARRAYS = (
    "calls", "waits", "blocks", "tcp", "ooms", "xids", "execs",
    "operations", "threads", "culprits", "wakers", "io", "in_flight", "samples",
)  # fmt: skip


class Writer:
    """Writes one recording of one node. Used by one thread at a time."""

    def __init__(
        self,
        path: Path | str,
        node: str,
        clock: Clock,
        operations: Sequence[Operation],
        max_bytes: int = 0,
        *,
        command: str = "",
        cores: int | None = None,
    ) -> None:
        """`cores`: of the machine that is recorded, where that is not this one."""
        self.path = Path(path)
        self.status = ""  # what is wrong now, in words; empty when all is well
        self.dropped: Counter[str] = Counter()  # rows given up, by reason
        self._clock = clock
        self._backlog: deque[Window] = deque()
        self._losses: list[Loss] = []
        self._stacks: deque[ResolvedStack] = deque(maxlen=CARRIED_STACKS)  # of windows given up
        self._findings: dict[str, FindingRow] = {}
        self._withdrawn: set[str] = set()  # keys of findings told before
        self._steps_saved = 0
        self._stored_rows = 0
        self._closed = False
        self._connection = connect(self.path)
        # SQLite opens files beside it when it needs them.
        self._who = rights.whose(self.path.absolute().parent)
        self._file = location.identity(self.path)
        with rights.acting_as(self._who):
            self._reserve = Reserve(self.path.parent)
            self._begin(node, operations, max_bytes, command, cores)

    def _begin(
        self, node: str, operations: Sequence[Operation], max_bytes: int, command: str, cores: int | None
    ) -> None:
        try:
            self._recording = Recording(
                self._connection,
                clean(node, 255) or "localhost",
                self._clock,
                operations,
                clean(command, 4096),
                cores,
                max_bytes,
            )
            self._retention = Retention(
                self._connection,
                max_bytes,
                self._recording.id,
                self._recording.node_id,
                self._recording.forget_stacks,
            )
            self._retention.set_up()
            # A window that has to wait waits in the backlog, not in the way of the next one.
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            self._meddling = Meddling(self._connection, self.path)
        except sqlite3.Error as error:
            self._reserve.release()
            self._connection.close()
            raise opening.opening_error(self.path, error) from error

    @property
    def recording_id(self) -> int:
        return self._recording.id

    def size_bytes(self) -> int:
        """Of the database and its log; a file that is gone has none."""
        total = 0
        for path in (self.path, self.path.with_name(self.path.name + "-wal")):
            with contextlib.suppress(OSError):
                total += path.stat().st_size
        return total

    def save_findings(self, found: Iterable[FindingRow]) -> None:
        """Stored with the next window; the same key again replaces the earlier one."""
        for row in found:
            self._findings[row.key] = row
            self._withdrawn.discard(row.key)

    def drop_findings(self, keys: Iterable[str]) -> None:
        """Taken back with the next window."""
        for key in keys:
            self._findings.pop(key, None)
            self._withdrawn.add(key)

    def note(self, absent: Mapping[str, str], ns_per_hit: float, budget: float | None) -> None:
        """Which sources are not recorded, and why; what a probe hit costs."""
        self.status = self._attempt(lambda: self._recording.note(absent, ns_per_hit, budget))

    def facts(self, reach_ns: int | None = None) -> Facts:
        with rights.acting_as(self._who):
            if cut_short := self._meddling.mend_index():
                raise sqlite3.OperationalError(cut_short)
            return self._recording.facts(reach_ns)

    def write(self, window: Window) -> str:
        """Store a window, and those that waited before it; returns the status."""
        self._backlog.append(window)
        self.status = self._attempt(self._drain)
        if self.status:
            self._shorten_backlog()
        return self.status

    def _attempt(self, work: Callable[[], None]) -> str:
        if location.identity(self.path) != self._file:
            return "the database file was removed or replaced while recording"
        try:
            with rights.acting_as(self._who):
                if cut_short := self._meddling.mend_index():
                    return cut_short
                work()
        except (sqlite3.Error, *STUMBLES) as error:
            status = opening.passing(error) if isinstance(error, sqlite3.Error) else None
            status = status or self._meddling.blame(error)
            if not status:
                raise
            return status
        return ""

    def _drain(self) -> None:
        while self._backlog:
            window = self._backlog[0]
            if self._stacks:  # later windows cite them, and they are told once
                window.stacks = [*self._stacks, *window.stacks]
                self._stacks.clear()
            steps = self._clock.steps
            found = FindingChanges(self._findings.values(), self._withdrawn)
            self._recording.store(window, self._losses, steps[self._steps_saved :], found)
            self._backlog.popleft()
            self._stored_rows += rows_of(window)
            self._losses.clear()
            self._findings.clear()
            self._withdrawn.clear()
            self._steps_saved = len(steps)
            newest_ns = self._clock.wall_ns(window.end_ns)
            self._retention.trim(newest_ns)
            self._recording.drop_unused(newest_ns)
            self.dropped.update(self._recording.left_out)
            self._recording.left_out.clear()

    def _shorten_backlog(self) -> None:
        while len(self._backlog) > BACKLOG_WINDOWS or sum(map(_size_bytes, self._backlog)) > BACKLOG_BYTES:
            self._give_up(self._backlog.popleft())

    def _give_up(self, window: Window) -> None:
        rows = rows_of(window)
        self.dropped[BACKLOG_LOSS] += rows
        from_ns, to_ns = self._clock.wall_ns(window.start_ns), self._clock.wall_ns(window.end_ns)
        # Losses the window itself carried must not be lost with it.
        self._losses.extend((from_ns, to_ns, reason, count) for reason, count in window.losses.items())
        self._stacks.extend(window.stacks)
        last = self._losses[-1] if self._losses else None
        self._losses.append((from_ns, to_ns, BACKLOG_LOSS, rows))
        if last is not None and last[2] == BACKLOG_LOSS and last[1] >= from_ns:
            self._losses[-2:] = [(last[0], to_ns, BACKLOG_LOSS, last[3] + rows)]

    def close(self) -> str:
        """Store what is left and mark the recording complete; returns the status. Once is enough."""
        if self._closed:
            return self.status
        self._closed = True
        if self._backlog:
            self.status = self._attempt(self._drain)
        while self._backlog:
            self._give_up(self._backlog.popleft())
        ended = self._end()
        self.status = self.status or ended
        with rights.acting_as(self._who):
            self._meddling.mend_index()
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._connection.close()
            self._reserve.release()
        self.status = self.status or self._verified()
        return self.status

    def _verified(self) -> str:
        """A log that somebody ruined is believed by the connection that wrote it, and by nobody else."""
        try:
            with contextlib.closing(open_as_it_lies(self.path)) as fresh:
                asked = "SELECT ended_ns FROM recording WHERE id = ?"
                found = fresh.execute(asked, (self._recording.id,)).fetchone()
        except (sqlite3.Error, StoreError) as error:
            if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                return ""  # somebody reads it: it can be read
            found = None
        if found and found[0] is not None:
            return ""
        self.dropped[BACKLOG_LOSS] += self._stored_rows
        return DAMAGED

    def _end(self) -> str:
        found = FindingChanges(self._findings.values(), self._withdrawn)
        status = self._attempt(lambda: self._recording.end(self._losses, found))
        if status and self._reserve.release():  # what matters most may fit
            self._attempt(lambda: self._recording.end_briefly(self._losses, found))
        return status

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def rows_of(window: Window) -> int:
    return len(window.annotations) + sum(len(getattr(window, name)) for name in _ARRAYS)


def _size_bytes(window: Window) -> int:
    return sum(int(getattr(window, name).nbytes) for name in _ARRAYS)
