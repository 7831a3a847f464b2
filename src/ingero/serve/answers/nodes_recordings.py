"""Recordings of many nodes as one database: fetched, set to our clock, merged.

What only all rows together can tell (an average over the fleet, who came last to a collective)
is asked of the result with the same code as of any merged database. What is fetched is
bounded: a stretch of time, the tables that are needed, bytes per node and in all.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ingero.errors import IngeroError, UsageError
from ingero.fleet import clocks
from ingero.fleet.asking import Reply
from ingero.fleet.failures import Failure, Problem
from ingero.fleet.nodes import Node
from ingero.model.clocks import ClockOffset
from ingero.serve.answers.asked_nodes import Fleet, FleetState, about, ask, state_of
from ingero.serve.answers.merging import MergeAnswer, merge_databases
from ingero.serve.answers.nodes_rows import FleetRows
from ingero.serve.answers.query import Limits, Range, ask_sql
from ingero.store import guard
from ingero.store.excerpt import ExcerptPart, write_excerpt
from ingero.store.merge.source import private_database
from ingero.units import clean

Progress = Callable[[str], None]
MOVED = ".moved.db"


class FleetMerge(MergeAnswer, frozen=True):
    """As of files, and who was asked; `added` names addresses."""

    fleet: FleetState


@dataclass(frozen=True)
class NodeClock:
    """How a node's times were set to our clock: `left_ns` is what they may still be off by."""

    shift_ns: int
    left_ns: int | None


@dataclass(frozen=True)
class Gathered:
    """One database of many nodes, for as long as its folder is there."""

    path: Path
    state: FleetState
    merged: MergeAnswer
    clocks: dict[str, NodeClock] = field(default_factory=dict)  # by name of the node


@contextmanager
def gathered(
    fleet: Fleet,
    wanted: Range,
    tables: frozenset[str] | None = None,
    last: bool = False,
    progress: Progress = lambda _: None,
) -> Iterator[Gathered]:
    """The nodes' recordings of that time in one temporary database, by our clock.

    Without a range everything each node has, or with `last` its last recording.
    """
    with tempfile.TemporaryDirectory(prefix="ingero-nodes-") as name:
        folder = Path(name)
        yield gather_into(folder / "all.db", fleet, wanted, tables, last, progress)


def gather_into(
    target: Path,
    fleet: Fleet,
    wanted: Range,
    tables: frozenset[str] | None = None,
    last: bool = False,
    progress: Progress = lambda _: None,
) -> Gathered:
    """The same, into a file that stays."""
    if target.exists():
        raise UsageError(
            f"{target} exists; recordings fetched from nodes go into a new file",
            hint="Choose another with -o.",
        )
    with tempfile.TemporaryDirectory(prefix="ingero-fetched-") as name:
        folder = Path(name)
        numbers: dict[Node, int] = {}

        def file_of(node: Node) -> Path:
            return folder / f"{numbers.setdefault(node, len(numbers))}.db"

        names = ",".join(sorted(tables)) if tables is not None else None
        asked = about(
            "recording", wanted, into=file_of, tables=names, last="true" if last else None,
            most_bytes=fleet.limits.answer_bytes,
        )  # fmt: skip
        replies = ask(fleet, asked)
        set_to: dict[str, NodeClock] = {}
        files = [path for path in (by_our_clock(each, set_to) for each in replies) if path is not None]
        state = state_of(fleet, replies)
        # Their times are ours by now: what is left is how far they may still be off.
        errors = [ClockOffset(node, 0, 0, clock.left_ns, "measured") for node, clock in set_to.items()]
        merged = merge_databases(files, target, None, progress, errors)
        addresses = {str(each.file): each.node.name for each in replies if each.file is not None}
        parts = [msgspec.structs.replace(part, file=addresses[_fetched(part.file)]) for part in merged.added]
    return Gathered(target, state, msgspec.structs.replace(merged, added=parts), set_to)


def _fetched(path: str) -> str:
    return path.replace(MOVED, ".db")


def merge_nodes(fleet: Fleet, target: Path, wanted: Range, progress: Progress = lambda _: None) -> FleetMerge:
    """`ingero merge --nodes`."""
    found = gather_into(target, fleet, wanted, progress=progress)
    fields = {name: getattr(found.merged, name) for name in MergeAnswer.__struct_fields__}
    return FleetMerge(**fields, fleet=found.state)


def by_our_clock(reply: Reply, set_to: dict[str, NodeClock]) -> Path | None:
    """The file with its times moved; None, and why in the reply, where it is none of ours."""
    if not reply.answered or reply.file is None:
        return None
    try:
        shifts = _shifts(reply.file, reply.clock)
        for node, moved in shifts.items():
            left_ns = reply.clock.left_ns if reply.clock else None
            set_to[node] = NodeClock(moved[-1][1], left_ns)
        if not any(by for moved in shifts.values() for _, by in moved):
            return reply.file
        moved_file = reply.file.with_suffix(MOVED)
        write_excerpt(reply.file, moved_file, ExcerptPart(shifts=shifts))
        reply.file.unlink()
        return moved_file
    except (IngeroError, sqlite3.Error, ValueError, TypeError) as error:
        why = getattr(error, "message", None) or str(error)
        why = why.replace(str(reply.file), "its recording")
        reply.failure = Failure(Problem.GARBAGE, clean(why, 300), "Install the same version on all nodes.")
        return None


_LAST = """
    SELECT n.name, r.id, MAX(r.last_ns), r.started_ns FROM recording r JOIN node n ON n.id = r.node_id
    GROUP BY n.id"""
_STEPS = "SELECT at_ns, delta_ns, adopted FROM clock_step WHERE recording_id = ? ORDER BY at_ns LIMIT 10000"


def _shifts(path: Path, clock: clocks.Offset | None) -> dict[str, list[tuple[int, int]]]:
    """What the times of each node in a file need.

    The steps of its last recording lead from now back to its beginning. What was recorded before that,
    perhaps before a reboot, is moved by the offset alone.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        for node, number, _, started_ns in connection.execute(_LAST).fetchall():
            rows = connection.execute(_STEPS, (number,))
            steps = [clocks.Step(int(at), int(delta), bool(adopted)) for at, delta, adopted in rows]
            first, *later = [(each.from_ns, each.shift_ns) for each in clocks.stretches(steps, clock)]
            before = [(0, clock.shift_ns if clock else 0), (int(started_ns), first[1])] if later else [first]
            found[str(node)] = [*before, *later]
    return found


def ask_reduced_sql(
    fleet: Fleet, sql: str, wanted: Range, limits: Limits, progress: Progress = lambda _: None
) -> FleetRows:
    """One statement over the rows of all nodes together."""
    with gathered(fleet, wanted, tables_of(sql), progress=progress) as found:
        answer = ask_sql(found.path, sql, limits)
    corrected = sorted(each for each, clock in found.clocks.items() if clock.shift_ns)
    notes = [*answer.notes, *(f"times of {each} are by our clock" for each in corrected[:20])]
    return FleetRows(answer.columns, answer.rows, answer.truncated, notes, [], found.state)


def tables_of(sql: str) -> frozenset[str]:
    """The tables a statement reads, through whichever views; raises where it makes no sense.

    SQLite's own authorizer is told every one of them while the statement is prepared over an
    empty database.
    """
    with tempfile.TemporaryDirectory(prefix="ingero-sql-") as folder:
        path = Path(folder) / "empty.db"
        path.touch(mode=0o600)
        with closing(private_database(path)) as connection:
            return frozenset(guard.tables_read(connection, sql))
