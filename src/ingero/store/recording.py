"""One recording in the database: opening it, and one transaction per window.

Errors of SQLite pass through here, after everything of the failed transaction,
cached numbers included, is undone. What to do about them is the writer's part.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ingero import __version__, rights
from ingero.clock import Clock, ClockStep
from ingero.model.facts import Facts, slice_start
from ingero.model.operations import Operation
from ingero.model.window import Unwatchable, Window, aligned
from ingero.store import annotation_rows, call_rows, findings, location, migrations, opening, processes
from ingero.store.aggregate_rows import AggregateRows
from ingero.store.call_rows import fill_in
from ingero.store.event_rows import EventRows, Ids
from ingero.store.facts import FactReader
from ingero.store.findings import NO_CHANGES, FindingChanges
from ingero.store.machine_rows import GpuRows, save_overhead
from ingero.store.names import LOSS as NAMES_LOSS
from ingero.store.names import Names, OperationTable, most_names
from ingero.store.processes import LOSS as PROCESSES_LOSS
from ingero.store.processes import Processes, boot_id, most_processes
from ingero.store.rollup import roll_up
from ingero.store.schema import NODE_SHIFT
from ingero.store.stack_rows import StackRows
from ingero.store.unused import Holder, Unused
from ingero.store.weights import Weights
from ingero.units import MINUTE, clean

BUSY_S = 1.0
FOREIGN_LOSS = "unknown_operation"
_PRAGMAS = (
    "auto_vacuum = INCREMENTAL",  # only takes effect before the first table
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "temp_store = MEMORY",
    "cache_size = -16000",
    "trusted_schema = OFF",
)

Loss = tuple[int, int, str, int]  # from and to (Unix epoch), reason, count


def connect(path: Path) -> sqlite3.Connection:
    """A writing connection to a database in the present schema, made if there is none."""
    prepared = location.prepare(path)
    with rights.acting_as(prepared.who):
        return _connect(path, prepared.identity)


def _connect(path: Path, meant: tuple[int, int]) -> sqlite3.Connection:
    try:
        # rw: the file is there. SQLite must not make another one where a link leads by now.
        connection = sqlite3.connect(
            location.uri(path, "mode=rw"),
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            location.require_open(meant, path)
            migrations.refuse_newer(migrations.applied_names(connection, path), path)
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            migrations.upgrade(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise opening.opening_error(path, error) from error
    return connection


class Recording:
    """What one run of the agent writes; ids of rows continue those of earlier runs."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        node: str,
        clock: Clock,
        operations: Sequence[Operation],
        command: str,
        cores: int | None = None,
        max_bytes: int = 0,
    ) -> None:
        self.connection, self._clock = connection, clock
        self._cores = cores or os.cpu_count()
        self._table, self._names = OperationTable(operations), Names(connection, most_names(max_bytes))
        self._stacks = StackRows(connection)
        self.left_out: Counter[str] = Counter()  # names and processes there was no room for
        self._minute: int | None = None
        self._watching = False
        self._last_ids: dict[tuple[int, int, int], int] = {}
        self._weights = Weights(self._last_ids)
        self._boot = boot_id() if cores is None else ""  # given: of another machine, or made up
        self.started_ns = clock.now_ns
        with self._transaction():
            self._begin(node, command)
        self._processes = Processes(
            connection, self.node_id, clock, self._boot, self.started_ns, most_processes(max_bytes)
        )
        self._unused = Unused(
            connection,
            (
                Holder(self._names.forget, self._names.held),
                Holder(self._processes.forget, self._processes.held),
            ),
        )

    def _begin(self, node: str, command: str) -> None:
        self.connection.execute("INSERT OR IGNORE INTO node (name) VALUES (?)", (node,))
        found = self.connection.execute("SELECT id FROM node WHERE name = ?", (node,)).fetchone()
        self.node_id = int(found[0])
        cursor = self.connection.execute(
            "INSERT INTO recording (node_id, boot_id, version, command, cores, agent_pid, started_ns,"
            " last_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self.node_id, self._boot, __version__, command, self._cores, os.getpid(),
                self.started_ns, self.started_ns,
            ),
        )  # fmt: skip
        self.id = int(cursor.lastrowid or 0)

    def note(self, absent: Mapping[str, str], ns_per_hit: float, budget: float | None) -> None:
        """Which sources are not recorded, and why: nothing may be concluded from their silence.

        And what a probe hit costs here, to tell later what the recording cost the job.
        """
        with self._transaction():
            self.connection.execute(
                "UPDATE recording SET absent = ?, ns_per_hit = ?, budget = ? WHERE id = ?",
                (json.dumps(absent), ns_per_hit, budget, self.id),
            )

    def facts(self, reach_ns: int | None = None) -> Facts:
        """What has been stored so far, or within the last `reach_ns`."""
        started, last = self.connection.execute(
            "SELECT started_ns, last_ns FROM recording WHERE id = ?", (self.id,)
        ).fetchone()
        from_ns = started if reach_ns is None else max(started, slice_start(last - reach_ns, started))
        return FactReader(self.connection, self.node_id, started).read(from_ns, last)

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

    def store(
        self,
        window: Window,
        losses: Iterable[Loss] = (),
        steps: Iterable[ClockStep] = (),
        found: FindingChanges = NO_CHANGES,
    ) -> None:
        """Everything of one window, or nothing."""
        ended = self._weights.take_ended()
        last_ids = dict(self._last_ids)
        try:
            with self._transaction():
                self._store(window, losses, steps, found)
                if ended:
                    self._weights.settle(self.connection, self._table.ids(self._names), ended)
        except BaseException:
            self._last_ids.clear()
            self._last_ids.update(last_ids)
            self._weights.ended_again(ended)
            self.forget()
            raise
        self._weights.add(window, self._table.known(window.calls["op"]))
        self._weights.forget(ended)

    def forget_stacks(self) -> None:
        """Some were deleted."""
        self._stacks.forget()

    def _no_room(self) -> list[tuple[str, int]]:
        """Names and processes that could not be stored in this window."""
        counts = {NAMES_LOSS: self._names.take_counts(), PROCESSES_LOSS: self._processes.take_counts()}
        for added, left_out in counts.values():
            self._unused.note(added, left_out)
        return [(reason, left_out) for reason, (_, left_out) in counts.items() if left_out]

    def drop_unused(self, newest_ns: int) -> int:
        """Some of the work of finding rows that nothing refers to; how many were deleted."""
        with self._transaction():
            return self._unused.step(newest_ns)

    def forget(self) -> None:
        self._unused.restart()
        self._names.forget()
        self._processes.forget()
        self._stacks.forget()

    def _store(
        self, window: Window, losses: Iterable[Loss], steps: Iterable[ClockStep], found: FindingChanges
    ) -> None:
        start_ns, end_ns = self._clock.wall_ns(window.start_ns), self._clock.wall_ns(window.end_ns)
        self._turn_minute(start_ns)
        next_seq = self.connection.execute(
            "SELECT next_seq FROM node WHERE id = ?", (self.node_id,)
        ).fetchone()[0]
        ids = Ids(self.node_id << NODE_SHIFT, next_seq)
        self._stacks.save(window.stacks, end_ns)
        foreign = self._events(window, ids)
        self._aggregates(window, start_ns, end_ns)
        if self._watching:
            call_rows.drop_returned(self.connection, self.node_id, self.id, end_ns)
        self._stacks.cite((window.call_stacks, window.wait_stacks, window.samples["stack_hash"]), end_ns)
        findings.save(self.connection, self.node_id, ids, found)
        seen = [(start_ns, end_ns, reason, count) for reason, count in window.losses.items()]
        no_room = self._no_room()
        here = [(start_ns, end_ns, reason, count) for reason, count in ((FOREIGN_LOSS, foreign), *no_room)]
        self.save_losses([*losses, *seen, *here])
        self.left_out.update(dict(no_room))
        self._save_not_watched(window.not_watched, end_ns)
        annotation_rows.save(
            self.connection,
            (self.node_id, self.id),
            window.annotations,
            self._clock,
            self._names,
            self._processes,
        )
        self._save_steps(steps)
        save_overhead(self.connection, self.node_id, self.id, self._clock, window)
        self.connection.execute(
            "INSERT OR REPLACE INTO window VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self.id, start_ns, end_ns, self.node_id, ids.base + next_seq, ids.base + ids.next - 1,
                window.hits, window.agent_cpu_ns,
            ),
        )  # fmt: skip
        self.connection.execute("UPDATE node SET next_seq = ? WHERE id = ?", (ids.next, self.node_id))
        if not self._watching:  # what came before was attaching: nothing was seen then
            self.connection.execute("UPDATE recording SET started_ns = ? WHERE id = ?", (start_ns, self.id))
        self.connection.execute(
            "UPDATE recording SET last_ns = MAX(last_ns, ?) WHERE id = ?", (end_ns, self.id)
        )
        self._watching = True

    def _turn_minute(self, start_ns: int) -> None:
        minute = start_ns // MINUTE
        if minute != self._minute and self._minute is not None:
            roll_up(self.connection, self.node_id)
        self._minute = minute

    def _events(self, window: Window, ids: Ids) -> int:
        rows = EventRows(
            self.connection,
            self.node_id,
            self._clock,
            self._names,
            self._processes,
            self._table,
            ids,
            self._last_ids,
        )
        lives = [event for event in map(self._processes.announce, window.processes) if event is not None]
        rows.life(lives)
        for bystander in window.bystanders:  # its life is none of this trace's business
            self._processes.announce(bystander)
        foreign = rows.calls(window.calls, aligned(window.call_stacks, len(window.calls)), window.kernels)
        if window.kernels_learnt:
            fill_in(self.connection, self._names, self._table, window, self._events_of_this_run(ids))
        rows.unsampled(window.unsampled)
        rows.waits(window.waits, aligned(window.wait_stacks, len(window.waits)))
        rows.blocks(window.blocks)
        rows.retransmits(window.tcp)
        rows.oom_kills(window.ooms)
        rows.xids(window.xids)
        rows.execs(window.execs)
        return foreign

    def _events_of_this_run(self, ids: Ids) -> tuple[int, int]:
        first = self.connection.execute(
            "SELECT MIN(first_id) FROM window WHERE recording_id = ?", (self.id,)
        ).fetchone()[0]
        end = ids.base + ids.next
        return first or end, end

    def _aggregates(self, window: Window, start_ns: int, end_ns: int) -> None:
        rows = AggregateRows(
            self.connection,
            self.node_id,
            self._clock,
            self._names,
            self._processes,
            self._table,
            start_ns,
            end_ns,
        )
        rows.containers(window.containers)
        processes.save_container_labels(self.connection, self.node_id, window.containers)
        processes.save_pod_events(self.connection, self.node_id, start_ns, window.pod_events)
        rows.operations(window.operations)
        rows.threads(window.threads)
        rows.samples(window.samples)
        rows.culprits(window.culprits)
        rows.wakers(window.wakers)
        rows.io(window.blocks)
        rows.others_io(window.io)
        rows.in_flight(window.in_flight)
        if window.system is not None:
            rows.system(window.system)
        GpuRows(self.connection, self.node_id, self._clock, self._names, self._processes).save(
            window.gpus, end_ns
        )

    def save_losses(self, losses: Iterable[Loss]) -> None:
        self.connection.executemany(
            "INSERT INTO loss VALUES (?, ?, ?, ?, ?)",
            [
                (self.node_id, from_ns, to_ns, self._names.string(reason), count)
                for from_ns, to_ns, reason, count in losses
                if count
            ],
        )

    def _save_not_watched(self, news: Iterable[Unwatchable], at_ns: int) -> None:
        self.connection.executemany(
            "INSERT OR IGNORE INTO not_watched VALUES (?, ?, ?, ?, ?, ?)",
            [
                (self.node_id, self.id, each.pid, clean(each.what, 64), clean(each.why), at_ns)
                for each in news
            ],
        )

    def _save_steps(self, steps: Iterable[ClockStep]) -> None:
        self.connection.executemany(
            "INSERT INTO clock_step VALUES (?, ?, ?, ?, ?, ?)",
            [
                (self.node_id, self.id, self._clock.wall_ns(s.mono_ns), s.wall_ns, s.delta_ns, s.adopted)
                for s in steps
            ],
        )

    def end(self, losses: Iterable[Loss] = (), found: FindingChanges = NO_CHANGES) -> None:
        """The recording is complete: nothing follows."""
        with self._transaction():
            while roll_up(self.connection, self.node_id):
                pass
            self._weights.settle(self.connection, self._table.ids(self._names))
            self._last_words(losses, found)

    def end_briefly(self, losses: Iterable[Loss], found: FindingChanges) -> None:
        """The same where there is little room: sums of minutes can be made later, these cannot."""
        self._names.forget()  # what the transaction before it added is undone
        with self._transaction():
            self._last_words(losses, found)

    def _last_words(self, losses: Iterable[Loss], found: FindingChanges) -> None:
        self.save_losses(losses)
        self._save_findings(found)
        self.connection.execute(
            "UPDATE recording SET ended_ns = MAX(?, last_ns) WHERE id = ?", (self._clock.now_ns, self.id)
        )

    def _save_findings(self, found: FindingChanges) -> None:
        next_seq = self.connection.execute(
            "SELECT next_seq FROM node WHERE id = ?", (self.node_id,)
        ).fetchone()[0]
        ids = Ids(self.node_id << NODE_SHIFT, next_seq)
        findings.save(self.connection, self.node_id, ids, found)
        self.connection.execute("UPDATE node SET next_seq = ? WHERE id = ?", (ids.next, self.node_id))
