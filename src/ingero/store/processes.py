"""Which process a PID means at an instant: PIDs are reused, rows must not mix.

A process is (boot, pid, start); /proc tells the start in 10 ms ticks and the
kernel in nanoseconds, so identity compares ticks. Calls may arrive before
anything is known of their process: a placeholder without a start stands for it
until it is announced. The database is the memory; what is cached here can be
forgotten after a rollback.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingero.clock import Clock
from ingero.model.window import Container, Labels, PodEvent, Process
from ingero.units import clean

MOST, FEWEST = 200_000, 2_000  # rows; what nothing refers to any more is deleted (unused.py)
BYTES_PER_PROCESS = 20_000  # of the largest size a database may have: at most a fifth of it is of processes
LOSS = "process_rows"
TICK_NS = 10_000_000  # USER_HZ is 100 on every architecture we run on
LATE_NS = 2_000_000_000  # the last counts of a process may arrive in a window after its end
_FOREVER = 2**63 - 1


@dataclass(slots=True)
class Incarnation:
    id: int
    start_ns: int  # 0 in a placeholder: since ever
    end_ns: int
    tick: int | None
    first_seen_ns: int
    target: bool = True


@dataclass(frozen=True, slots=True)
class LifeEvent:
    """A process began or ended while we watched."""

    name: str  # fork, exit
    at_ns: int
    process_id: int
    process: Process


def boot_id() -> str:
    """Names this boot of this machine: start times are only comparable within one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def most_processes(max_bytes: int) -> int:
    """How many fit into a database of that size; 0: of any size."""
    return min(MOST, max(FEWEST, max_bytes // BYTES_PER_PROCESS)) if max_bytes else MOST


class Processes:
    def __init__(
        self,
        connection: sqlite3.Connection,
        node_id: int,
        clock: Clock,
        boot: str,
        since_ns: int,
        most: int | None = None,
    ) -> None:
        """`most` rows; None: as many as there are."""
        self._most, self._count = most, -1  # not counted yet
        self.left_out = self.added = 0  # since they were last taken
        self._connection, self._node_id, self._clock = connection, node_id, clock
        self._boot, self._since_ns = boot, since_ns
        self._by_pid: dict[int, list[Incarnation]] = {}
        self._stored: dict[int, Process] = {}

    def forget(self) -> None:
        """After a rollback: read everything from the database again."""
        self._by_pid.clear()
        self._stored.clear()
        self._count = -1

    def held(self) -> dict[str, set[int]]:
        """Those whose numbers were handed out since they were last forgotten."""
        return {"process": {life.id for lives in self._by_pid.values() for life in lives}}

    def take_counts(self) -> tuple[int, int]:
        """How many came, and how many had no room."""
        counts, self.added, self.left_out = (self.added, self.left_out), 0, 0
        return counts

    def announce(self, process: Process) -> LifeEvent | None:
        """Store what is known of a process; says whether it just began or ended."""
        tick = process.start_ns // TICK_NS
        lives = self._lives(process.pid)
        life = next((each for each in reversed(lives) if each.tick == tick), None)
        began = life is None
        if life is None:
            life = self._identify(process, tick, lives)
        if life is None:
            return None
        if life.target and not process.target and not began:
            return None  # a target whom somebody met as a bystander: the trace knows it better
        if self._stored.get(life.id) == process:
            return None
        life.target = process.target
        ended = process.end_ns is not None and life.end_ns == _FOREVER
        self._save(life, process)
        if ended:
            return LifeEvent("exit", life.end_ns, life.id, process)
        began = began and life.start_ns >= self._since_ns
        return LifeEvent("fork", life.start_ns, life.id, process) if began else None

    def _identify(self, process: Process, tick: int, lives: list[Incarnation]) -> Incarnation | None:
        start_ns = self._clock.boot_to_wall(process.start_ns)
        last = lives[-1] if lives else None
        if last is not None and last.tick is None and start_ns <= last.first_seen_ns + TICK_NS:
            last.tick, last.start_ns = tick, start_ns
            return last
        return self._insert(process.pid, tick, start_ns, start_ns)

    def _full(self) -> bool:
        if self._most is None:
            return False
        if self._count < 0:
            self._count = self._connection.execute("SELECT COUNT(*) FROM process").fetchone()[0]
        return self._count >= self._most

    def _insert(self, pid: int, tick: int | None, start_ns: int | None, seen_ns: int) -> Incarnation | None:
        """None where there are too many already; the loss says how many were left out."""
        if self._full():
            self.left_out += 1
            return None
        self._count += 1
        self.added += 1
        cursor = self._connection.execute(
            "INSERT INTO process (node_id, pid, boot_id, start_tick, start_ns, first_seen_ns)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (self._node_id, pid, self._boot, tick, start_ns, seen_ns),
        )
        life = Incarnation(int(cursor.lastrowid or 0), start_ns or 0, _FOREVER, tick, seen_ns)
        lives = self._lives(pid)
        if not any(each.id == life.id for each in lives):
            lives.append(life)
            lives.sort(key=lambda each: each.start_ns or each.first_seen_ns)
        return next(each for each in lives if each.id == life.id)

    def _save(self, life: Incarnation, process: Process) -> None:
        if process.end_ns is not None:
            life.end_ns = self._clock.wall_ns(process.end_ns)
        self._connection.execute(
            "UPDATE process SET start_tick = ?, start_ns = ?, end_ns = ?, exit_code = ?, parent_pid = ?,"
            " comm = ?, cmdline = ?, cgroup_id = ?, uid = ?, rank = ?, local_rank = ?,"
            " world_size = ?, target = ?, listens = ?, cpus = ? WHERE id = ?",
            (
                life.tick, life.start_ns, None if life.end_ns == _FOREVER else life.end_ns, process.exit_code,
                process.parent_pid, clean(process.comm, 64) or None, clean(process.cmdline, 4096) or None,
                process.cgroup_id,
                process.uid, process.rank, process.local_rank, process.world_size,
                life.target, process.listens, process.cpus or None, life.id,
            ),
        )  # fmt: skip
        if process.labels:
            save_process_labels(self._connection, self._node_id, life.id, process.labels)
        self._stored[life.id] = process

    def _lives(self, pid: int) -> list[Incarnation]:
        lives = self._by_pid.get(pid)
        if lives is None:
            rows = self._connection.execute(
                "SELECT id, COALESCE(start_ns, 0), COALESCE(end_ns, ?), start_tick, first_seen_ns,"
                " target"
                " FROM process WHERE node_id = ? AND pid = ? AND boot_id = ?"
                " ORDER BY COALESCE(start_ns, first_seen_ns)",
                (_FOREVER, self._node_id, pid, self._boot),
            )
            lives = self._by_pid[pid] = [Incarnation(*row) for row in rows]
        return lives

    def at(
        self, pids: NDArray[np.integer], instants_ns: NDArray[np.int64], create: bool
    ) -> NDArray[np.int64]:
        """The process of each (pid, instant); 0 where none is known and none shall be made up."""
        distinct, inverse = np.unique(pids, return_inverse=True)
        found = np.zeros(len(pids), np.int64)
        for number, pid in enumerate(distinct.tolist()):
            rows = np.flatnonzero(inverse == number)
            found[rows] = self._at(pid, instants_ns[rows], create and pid > 0)
        return found

    def during(
        self, pids: NDArray[np.integer], start_ns: int, end_ns: int, create: bool
    ) -> NDArray[np.int64]:
        """The last process that had each PID within an interval; 0 where none is known."""
        distinct, inverse = np.unique(pids, return_inverse=True)
        found = [self._during(pid, start_ns, end_ns, create and pid > 0) for pid in distinct.tolist()]
        return np.array(found, np.int64)[inverse]

    def _during(self, pid: int, start_ns: int, end_ns: int, create: bool) -> int:
        for life in reversed(self._lives(pid)):
            if life.start_ns <= end_ns and life.end_ns >= start_ns - LATE_NS:
                return life.id
        made = self._insert(pid, None, None, start_ns) if create else None
        return made.id if made else 0

    def _at(self, pid: int, instants_ns: NDArray[np.int64], create: bool) -> NDArray[np.int64]:
        lives = self._lives(pid)
        late_ns = int(instants_ns.max())
        if create and (not lives or late_ns > lives[-1].end_ns + TICK_NS):
            after_ns = lives[-1].end_ns if lives else 0
            self._insert(pid, None, None, int(instants_ns[instants_ns > after_ns].min()))
        if not lives:  # none is known, or there was no room
            return np.zeros(len(instants_ns), np.int64)
        starts = np.array([each.start_ns or each.first_seen_ns for each in lives], np.int64)
        at = np.maximum(np.searchsorted(starts, instants_ns, side="right") - 1, 0)
        return np.array([each.id for each in lives], np.int64)[at]


# Whose a process or container is, and what became of pods, as rows.
#
# Texts come from pods, environments and the kubelet: they are cleaned and capped here once
# more, whoever hands them in.


MAX_LABELS = 64  # of one process or container
MAX_KEY, MAX_VALUE = 128, 256


def save_container_labels(connection: sqlite3.Connection, node_id: int, found: Iterable[Container]) -> None:
    """What is told now stands for all that was told of it before."""
    for each in found:
        if each.labels:
            connection.execute(
                "DELETE FROM container_label WHERE cgroup_id = ? AND node_id = ?", (each.cgroup_id, node_id)
            )
            connection.executemany(
                "INSERT OR REPLACE INTO container_label VALUES (?, ?, ?, ?)",
                [(node_id, each.cgroup_id, key, value) for key, value in _bounded(each.labels)],
            )


def save_process_labels(
    connection: sqlite3.Connection, node_id: int, process_id: int, labels: Labels
) -> None:
    """Of a row's number that another process had before nothing may be left."""
    connection.execute("DELETE FROM process_label WHERE process_id = ?", (process_id,))
    connection.executemany(
        "INSERT OR REPLACE INTO process_label (node_id, process_id, key, value) VALUES (?, ?, ?, ?)",
        [(node_id, process_id, key, value) for key, value in _bounded(labels)],
    )


def save_pod_events(
    connection: sqlite3.Connection, node_id: int, start_ns: int, events: Iterable[PodEvent]
) -> None:
    """Of a window that begins at `start_ns`: from then on it is known what becomes of a pod that was seen.

    The kubelet is asked at once, and may tell of its pods while probes are still being put on.
    """
    connection.executemany(
        "INSERT OR IGNORE INTO pod_event (node_id, at_ns, uid, pod, namespace, container, event, reason,"
        " exit_code, restarts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                node_id, max(each.at_ns, start_ns) if each.event == "seen" else each.at_ns,
                clean(each.uid, MAX_KEY), clean(each.pod, MAX_VALUE), clean(each.namespace, MAX_VALUE),
                clean(each.container, MAX_VALUE), each.event,
                clean(each.reason, MAX_VALUE) if each.reason else None, each.exit_code, each.restarts,
            )
            for each in events
        ],
    )  # fmt: skip


def _bounded(labels: Labels) -> Iterable[tuple[str, str]]:
    for key, value in labels[:MAX_LABELS]:
        yield clean(key, MAX_KEY), clean(value, MAX_VALUE)
