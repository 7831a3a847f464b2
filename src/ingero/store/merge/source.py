"""An input made readable as a database of our schema, without writing to it.

Ours is read where it lies. One of the Go implementation is converted, and one of an
older version upgraded, in a private copy that goes with the merge.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from ingero import __version__
from ingero.errors import StoreError
from ingero.store import imported, migrations, opening
from ingero.store.foreign.convert import NAMELESS
from ingero.store.opening import open_read_only, read_only_uri
from ingero.store.schema import NODE_SHIFT, SEQ_MASK
from ingero.units import clean

MERGED = "merged"  # key in `meta` of a merge's result
MAX_NODE = (1 << (63 - NODE_SHIFT)) - 1
Identity = tuple[str, str | None, int]  # node, boot, start


@dataclass(frozen=True, slots=True)
class Part:
    """What one file holds of one node, as far as choosing needs to know it."""

    path: Path
    node: str
    node_id: int
    recordings: dict[Identity, int]  # and the last instant of each
    oldest_ns: tuple[int, int]  # of the first event and of the first second; what is older was deleted

    def covers(self, other: Part) -> bool:
        """Whether everything of the other is here too."""
        longer = all(self.recordings.get(each, -1) >= last for each, last in other.recordings.items())
        return longer and all(mine <= its for mine, its in zip(self.oldest_ns, other.oldest_ns, strict=True))

    def shares(self, other: Part) -> Identity | None:
        """A recording both have."""
        return next((each for each in self.recordings if each in other.recordings), None)


@dataclass(slots=True)
class MergeInput:
    """One input, ready to be attached."""

    path: Path  # as given
    uri: str
    parts: list[Part] = field(default_factory=list)
    merged: bool = False  # it is itself the result of a merge
    corrected: bool = False  # its times were moved: the same recording elsewhere would not be known again


def open_source(path: Path, folder: Path, force_node: str | None) -> MergeInput:
    """Look at an input; private copies go into `folder`."""
    try:
        with contextlib.closing(open_read_only(path)) as connection:
            if imported.recognised(connection):
                return _looked_at(path, _converted(path, folder, force_node))
            names = migrations.applied_names(connection, path)
            migrations.refuse_newer(names, path)
            if not names:
                raise StoreError(f"{path} is empty", hint="Leave it out.")
            if names == [step.name for step in migrations.ALL]:
                return _looked_at(path, read_only_uri(path))
            return _looked_at(path, _upgraded(connection, path, folder))
    except sqlite3.Error as error:
        raise opening.opening_error(path, error) from error


def _converted(path: Path, folder: Path, force_node: str | None) -> str:
    copy = _new_file(folder)
    with contextlib.closing(private_database(copy)) as out:
        imported.convert(path, out, force_node)
        named = {row[0] for row in out.execute("SELECT name FROM node")}
    if force_node is None and NAMELESS in named:
        raise StoreError(
            f"{path} does not say on which node it was recorded",
            hint="Name it with --force-node; files that name their node keep it.",
        )
    return read_only_uri(copy)


def _upgraded(connection: sqlite3.Connection, path: Path, folder: Path) -> str:
    copy = _new_file(folder)
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as out:
        connection.backup(out)
        out.execute("PRAGMA trusted_schema = OFF")
        migrations.upgrade(out, path)
    return read_only_uri(copy)


def _new_file(folder: Path) -> Path:
    copy = folder / f"{len(list(folder.iterdir()))}.db"
    copy.touch(mode=0o600)
    return copy


def private_database(path: Path) -> sqlite3.Connection:
    """A new database that is thrown away if anything goes wrong: nothing in it need survive a crash."""
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path.absolute()))}", uri=True, isolation_level=None
    )
    try:
        for pragma in ("auto_vacuum = INCREMENTAL", "journal_mode = OFF", "synchronous = OFF",
                       "trusted_schema = OFF", "cache_size = -32000"):  # fmt: skip
            connection.execute(f"PRAGMA {pragma}")
        migrations.upgrade(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def attached(out: sqlite3.Connection, source: MergeInput) -> Iterator[None]:
    """The source as `src` beside the result, one state of it, also while somebody records into it."""
    out.execute("ATTACH ? AS src", (source.uri,))
    try:
        out.execute("BEGIN")
        yield
        out.execute("COMMIT")
    finally:
        if out.in_transaction:
            out.execute("ROLLBACK")
        out.execute("DETACH src")


def plain_tables(connection: sqlite3.Connection, schema: str) -> dict[str, frozenset[str]]:
    """Columns by table: a view under a table's name could compute anything."""
    names = connection.execute(
        f"SELECT name FROM {schema}.sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    ).fetchall()
    found = "SELECT name FROM pragma_table_info(?, ?)"
    return {
        str(name): frozenset(row[0] for row in connection.execute(found, (name, schema))) for (name,) in names
    }


def _looked_at(path: Path, uri: str) -> MergeInput:
    with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        source = MergeInput(path, uri)
        tables = plain_tables(connection, "main")
        missing = {"meta", "node", "recording", "event", "operation_second"} - set(tables)
        if missing:
            raise StoreError(f"{path} has no table {sorted(missing)[0]}", hint="The file is damaged.")
        source.merged = bool(
            connection.execute("SELECT COUNT(*) FROM meta WHERE key = ?", (MERGED,)).fetchone()[0]
        )
        source.corrected = bool(
            connection.execute("SELECT COUNT(*) FROM meta WHERE key GLOB 'clock_shift:*'").fetchone()[0]
        )
        for node_id, name in connection.execute("SELECT id, name FROM node ORDER BY name").fetchall():
            source.parts.append(_part(connection, path, node_id, name))
    return source


def _part(connection: sqlite3.Connection, path: Path, node_id: object, name: object) -> Part:
    if not isinstance(node_id, int) or not 0 < node_id <= MAX_NODE or not isinstance(name, str):
        raise StoreError(f"{path} holds a node that makes no sense", hint="The file is damaged.")
    rows = connection.execute(
        "SELECT boot_id, started_ns, last_ns FROM recording WHERE node_id = ?", (node_id,)
    ).fetchall()
    recordings = {(name, boot, start): last for boot, start, last in rows}
    first = node_id << NODE_SHIFT
    event = connection.execute(
        "SELECT ts_ns FROM event WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 1", (first, first + SEQ_MASK)
    ).fetchone()
    second = connection.execute(
        "SELECT start_ns FROM operation_second WHERE node_id = ? ORDER BY start_ns LIMIT 1", (node_id,)
    ).fetchone()
    oldest = tuple(row[0] if row else 2**63 - 1 for row in (event, second))
    instants = [*oldest, *(instant for _, start, last in rows for instant in (start, last))]
    if not all(isinstance(instant, int) for instant in instants):  # SQLite takes text for a number
        raise StoreError(f"{path} holds times that make no sense", hint="The file is damaged.")
    return Part(path, name, node_id, recordings, (oldest[0], oldest[1]))


def describe(identity: Identity) -> str:
    """A recording in words."""
    from datetime import datetime

    node, _, started_ns = identity
    with contextlib.suppress(ValueError, OverflowError, OSError, TypeError):
        at = datetime.fromtimestamp(started_ns / 1e9).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        return f"the recording of {clean(node, 60)} from {at}"
    return f"a recording of {clean(node, 60)}"


def note_merge(connection: sqlite3.Connection) -> None:
    """Mark the result, so that a later merge may add to it."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (MERGED, f"ingero {__version__}"))


# Which parts of the inputs make up the result.
#
# The same recording may come in several inputs: a copy, an older state of it, or the
# result of an earlier merge. It is taken once, from the input that has most of it.


@dataclass(slots=True)
class MergePlan:
    """Parts taken, in order; the ids of earlier ones on a node stay as they are."""

    taken: list[tuple[MergeInput, Part]] = field(default_factory=list)
    known: list[Part] = field(default_factory=list)  # left out: another part has all of it

    def of(self, source: MergeInput) -> list[Part]:
        return [part for owner, part in self.taken if owner is source]

    @property
    def sources(self) -> list[MergeInput]:
        """Those something is taken from, in order."""
        return list({id(source): source for source, _ in self.taken}.values())

    def whole(self, source: MergeInput) -> bool:
        """Whether everything of a source is taken."""
        return len(self.of(source)) == len(source.parts)


def choose(sources: Sequence[MergeInput], earlier: MergeInput | None = None) -> MergePlan:
    """The earlier result comes first and then who began first: those keep their ids."""
    plan = MergePlan()
    for source in sorted(sources, key=lambda each: (each is not earlier, _begun_ns(each))):
        for part in source.parts:
            _consider(plan, source, part)
    return plan


def _begun_ns(source: MergeInput) -> int:
    return min((each[2] for part in source.parts for each in part.recordings), default=0)


def _consider(plan: MergePlan, source: MergeInput, part: Part) -> None:
    if any(taken.covers(part) for _, taken in plan.taken if taken.node == part.node):
        plan.known.append(part)
        return
    covered = [each for each in plan.taken if each[1].node == part.node and part.covers(each[1])]
    for each in covered:
        plan.taken.remove(each)
        plan.known.append(each[1])
    for _, other in plan.taken:
        both = part.shares(other)
        if both is not None:
            raise StoreError(
                f"{clean(str(other.path))} and {clean(str(part.path))} both have {describe(both)},"
                " and each has something the other lacks",
                hint="Merge only one of them, or both into files of their own.",
            )
    plan.taken.append((source, part))
