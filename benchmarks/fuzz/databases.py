"""Recordings from anybody: pages that are damaged, values that make no sense, in every answer and a merge."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.fuzz.mutate import VALUES, Chance
from benchmarks.fuzz.target import Try
from ingero.errors import IngeroError
from ingero.serve.answers.collectives import get_collectives
from ingero.serve.answers.event_detail import get_event
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.flame import get_flame
from ingero.serve.answers.gpu_series import get_gpus
from ingero.serve.answers.graphs import get_graphs
from ingero.serve.answers.heatmap import get_heatmap
from ingero.serve.answers.merging import merge_databases
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.query import Limits, Range, ask_kernels, ask_sql, ask_statistics
from ingero.serve.answers.recorded_metrics import recorded_metrics
from ingero.serve.answers.recordings import get_recordings
from ingero.serve.answers.stacks import get_stacks
from ingero.serve.answers.zoom import get_zoom
from ingero.serve.cli.as_text import write_text
from ingero.serve.cli.diagnosis import Verbosity, diagnosis
from ingero.serve.cli.tables import console
from ingero.store.writer import Writer
from tests import builders
from tests.builders import OPERATIONS, SECOND, fixed_clock, window

EVENTS = "SELECT * FROM events LIMIT 50"
MOST_STATEMENTS = 4
AT_ONCE = 3  # answers for each input: all of them take too long


def _explained(db: Path) -> None:
    report = get_report(db, Range())
    with Path(os.devnull).open("w") as out:
        write_text(diagnosis(report, Verbosity(True, True)), console(out))


def _merged(db: Path) -> None:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=db.parent))
        merge_databases([db, _sound_copy(Path(folder))], Path(folder) / "out.db")


ANSWERS: tuple[Callable[[Path], object], ...] = (
    _explained,
    _merged,
    lambda db: get_recordings(db, Range()),
    lambda db: ask_statistics(db, Range(), Filters(), 20),
    lambda db: ask_kernels(db, Range(), Filters(), 20),
    lambda db: ask_sql(db, EVENTS, Limits(rows=50, seconds=1)),
    lambda db: ask_sql(db, "SELECT * FROM thread_time", Limits(rows=50, seconds=1)),
    lambda db: get_heatmap(db, Range(), Filters(), 10),
    lambda db: get_zoom(db, Range(), 800),
    lambda db: get_flame(db, Range(), "calls"),
    lambda db: get_stacks(db, Range(), None, None, 20),
    lambda db: get_gpus(db, Range()),
    lambda db: get_graphs(db, Range()),
    lambda db: get_collectives(db, Range()),
    lambda db: get_event(db, "n1:3"),
    lambda db: recorded_metrics(db, Range()),
)


@cache
def sound() -> bytes:
    """A small recording with something in every table that windows fill."""
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "a.db"
        with Writer(db, "n1", fixed_clock(), OPERATIONS) as writer:
            for second in range(12):
                writer.write(_second(second))
        with contextlib.closing(sqlite3.connect(db)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("VACUUM")
        return db.read_bytes()


def _second(number: int) -> Any:
    at = number * SECOND
    calls = [builders.call(op, at_ns=at + 10 + 5 * n, args=(1,)) for n, op in enumerate(builders.NUMBERS)]
    slow = 40_000_000 if number > 6 else 1_000_000
    return window(
        at,
        calls=[*calls, builders.call("ncclAllReduce", 10**6, at_ns=at + 99, comm_hash=9, rank=0, nranks=2)],
        waits=[builders.wait(at_ns=at + 5), builders.wait("disk_wait", slow, at_ns=at + 7, waker="kworker")],
        blocks=[builders.block(at_ns=at + 3)],
        tcp=[builders.retransmit(at_ns=at + 4, pid=100)],
        operations=[builders.operation(op, [5000, slow]) for op in builders.NUMBERS],
        threads=[builders.thread(cuda_cpu=3 * 10**8, disk_wait=4 * 10**8, runqueue=3 * 10**8)],
        culprits=[builders.culprit()],
        wakers=[builders.waker()],
        in_flight=[builders.in_flight(now_ns=at + SECOND, since_ns=at)],
        samples=[builders.sample(11)],
        processes=[builders.process()] if not number else [],
        xids=[builders.xid(at_ns=at + 8)] if number == 9 else builders.xid()[:0],
    )


def _sound_copy(folder: Path) -> Path:
    path = folder / "sound.db"
    path.write_bytes(sound())
    return path


@cache
def columns() -> tuple[tuple[str, str], ...]:
    """Every column of every table of a sound recording."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(sound())
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return tuple(
            (table, str(row[1]))
            for (table,) in tables
            for row in connection.execute(f"PRAGMA table_info({table})")
            if not table.startswith("sqlite_")
        )


def pages() -> Sequence[bytes]:
    return [sound()]


def statements() -> Sequence[bytes]:
    return [b"[]"]


def mutated_values(_corpus: Sequence[bytes], chance: Chance, _words: Sequence[bytes]) -> bytes:
    """Which cells get which values, as JSON."""
    made = []
    for _ in range(chance.randrange(1, MOST_STATEMENTS + 1)):
        table, column = chance.choice(columns())
        value = chance.choice([each for each in VALUES if isinstance(each, int | float | str | None)])
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()
        made.append([table, column, chance.choice((1, 1, 2, 5)), value])
    return json.dumps(made).encode()


def _damaged(db: Path, changes: list[list[Any]]) -> None:
    with contextlib.closing(sqlite3.connect(db)) as connection:
        for table, column, every, value in changes:
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                value = float(value)
            with contextlib.suppress(sqlite3.Error):  # a value that the table itself refuses
                connection.execute(
                    f'UPDATE OR REPLACE "{table}" SET "{column}" = ? WHERE rowid % {every} = 0', (value,)
                )
        connection.commit()


def _ask(db: Path, data: bytes) -> None:
    first = zlib.crc32(data)
    for number in range(AT_ONCE):
        with contextlib.suppress(IngeroError):
            ANSWERS[(first + 5 * number) % len(ANSWERS)](db)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="fuzz-") as folder:
        yield Path(folder)


@contextmanager
def read_pages() -> Iterator[Try]:
    with _folder() as folder:
        db = folder / "a.db"

        def attempt(data: bytes) -> None:
            db.write_bytes(data)
            _ask(db, data)

        yield attempt


@contextmanager
def read_values() -> Iterator[Try]:
    with _folder() as folder:
        db = folder / "a.db"

        def attempt(data: bytes) -> None:
            db.write_bytes(sound())
            _damaged(db, json.loads(data))
            _ask(db, data)

        yield attempt
