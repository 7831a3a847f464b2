"""The merge itself: look, choose, copy, and only then let the result appear.

A source is never written to. An existing file is never replaced, save the result of
an earlier merge, which is kept with all it has and added to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ingero import rights
from ingero.errors import StoreError, UsageError
from ingero.model.clocks import ClockOffset
from ingero.store import location, opening
from ingero.store.clock_rows import save_offsets
from ingero.store.merge import source as planning
from ingero.store.merge.clocks import ClockNote, clock_notes
from ingero.store.merge.copying import copy_source
from ingero.store.merge.source import MergeInput, MergePlan, Part, note_merge, open_source, private_database
from ingero.store.schema import NODE_SHIFT, SEQ_MASK

_SIDE_FILES = ("-wal", "-journal")
_TWO_BOOTS = """
    SELECT DISTINCT n.name FROM recording a JOIN recording b ON b.node_id = a.node_id
    JOIN node n ON n.id = a.node_id
    WHERE a.boot_id < b.boot_id AND a.started_ns < b.last_ns AND b.started_ns < a.last_ns ORDER BY 1"""
Progress = Callable[[str], None]


@dataclass(slots=True)
class Merged:
    """What came of it."""

    changed: bool
    taken: list[Part]
    known: list[Part]
    nodes: list[tuple[str, int, int, int | None, int | None]]  # name, recordings, events, first, last
    clocks: list[ClockNote] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)  # names that seem to be of two machines


def merge(
    paths: Sequence[Path],
    target: Path,
    force_node: str | None = None,
    progress: Progress = lambda _: None,
    offsets: Sequence[ClockOffset] = (),
) -> Merged:
    """Everything the inputs have, in `target`. `offsets`: how far clocks of nodes are known to be apart."""
    inputs = _distinct(paths)
    before = _require_target(target, inputs)
    location.prepare_directory(target.absolute().parent)
    who = rights.whose(target.absolute().parent)
    # A folder of ours in a folder of another user could be exchanged while root works in it.
    beside = None if who else target.absolute().parent
    with tempfile.TemporaryDirectory(prefix=f".{target.name[:80]}.", dir=beside) as private:
        folder = Path(private)
        (folder / "inputs").mkdir()
        sources = _opened([target, *inputs] if before else inputs, folder / "inputs", force_node, progress)
        earlier = sources[0] if before else None
        if earlier is not None and not earlier.merged:
            raise _taken(target)
        plan = planning.choose(sources, earlier)
        if earlier is not None and plan.sources == [earlier] and plan.whole(earlier) and not offsets:
            return _summary(plan, earlier.uri, changed=False)
        made = folder / "result.db"
        found = _build(made, target, plan, progress, offsets)
        with made.open("rb") as file, rights.acting_as(who), _beside(target, made, file, who) as ready:
            _publish(ready, target, before)
    return found


def _distinct(paths: Sequence[Path]) -> list[Path]:
    """Each file once, in the order given."""
    found: dict[tuple[int, int] | Path, Path] = {}
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            at = path.stat()
            found.setdefault((at.st_dev, at.st_ino), path)
            continue
        found[path] = path  # whoever opens it says what is wrong
    return list(found.values())


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        at = path.lstat()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot write {path}: {error}", hint="Name another file with -o.") from error
    return at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns


def _require_target(target: Path, inputs: Sequence[Path]) -> tuple[int, ...] | None:
    """The target's identity, None where there is none yet."""
    before = _identity(target)
    if target.exists() and any(target.samefile(path) for path in inputs if path.exists()):
        raise UsageError(
            f"{target} is one of the files to merge",
            hint="A source is never overwritten: name another with -o.",
        )
    location.refuse_links(target, "-o")
    if before is not None and target.is_symlink():
        raise UsageError(
            f"{target} is a symbolic link and is not replaced", hint="Name the file itself with -o."
        )
    for side in _SIDE_FILES:
        beside = target.with_name(target.name + side)
        if beside.exists() and beside.stat().st_size:
            raise StoreError(
                f"{target} is in use: {beside.name} lies beside it",
                hint="Stop who writes it, or name another file with -o.",
            )
    return before


def _taken(target: Path) -> UsageError:
    return UsageError(
        f"{target} exists and is not the result of a merge",
        hint="It was left as it is: name another file with -o.",
    )


def _opened(
    paths: Sequence[Path], folder: Path, force_node: str | None, progress: Progress
) -> list[MergeInput]:
    sources = []
    for path in paths:
        progress(f"looking at {path}")
        sources.append(open_source(path, folder, force_node))
        if sources[-1].merged and sources[-1].corrected:
            raise StoreError(
                f"{path} was put together from nodes whose clocks were corrected",
                hint="The same recording could not be known again: merge the nodes' own, or ask them again.",
            )
    return sources


def _build(
    made: Path, target: Path, plan: MergePlan, progress: Progress, offsets: Sequence[ClockOffset]
) -> Merged:
    """The result in a private file."""
    location.prepare(made)
    with contextlib.closing(private_database(made)) as out:
        for source in plan.sources:
            progress(f"copying {source.path}")
            _copy(out, source, plan, target)
        put_in_order(out)
        save_offsets(out, offsets)
        note_merge(out)
        return _told(plan, out, changed=True)


def _copy(out: sqlite3.Connection, source: MergeInput, plan: MergePlan, target: Path) -> None:
    try:
        copy_source(out, source, plan.of(source))
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        if isinstance(error, sqlite3.Error) and opening.code_of(error) == sqlite3.SQLITE_FULL:
            raise opening.opening_error(target, error) from error
        raise StoreError(
            f"cannot merge {source.path}: {error}", hint="The file is damaged: leave it out."
        ) from error


def _summary(plan: MergePlan, uri: str, changed: bool) -> Merged:
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
        return _told(plan, connection, changed)


def _told(plan: MergePlan, connection: sqlite3.Connection, changed: bool) -> Merged:
    nodes = connection.execute(
        "SELECT n.name, (SELECT COUNT(*) FROM recording r WHERE r.node_id = n.id),"
        f" (SELECT COUNT(*) FROM event e WHERE e.id BETWEEN n.id << {NODE_SHIFT}"
        f" AND (n.id << {NODE_SHIFT}) + {SEQ_MASK}),"
        " (SELECT MIN(started_ns) FROM recording r WHERE r.node_id = n.id),"
        " (SELECT MAX(last_ns) FROM recording r WHERE r.node_id = n.id) FROM node n ORDER BY n.name"
    ).fetchall()
    taken = [part for _, part in plan.taken]
    doubtful = [row[0] for row in connection.execute(_TWO_BOOTS)]
    return Merged(changed, taken, plan.known, nodes, clock_notes(connection), doubtful)


def _claim(made: Path, target: Path) -> None:
    """Fails where the target exists by now, however it came there."""
    try:
        os.link(made, target)
    except OSError as error:
        if error.errno == errno.EEXIST:
            raise
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # no hard links there


@contextlib.contextmanager
def _beside(target: Path, made: Path, file: BinaryIO, who: rights.User | None) -> Iterator[Path]:
    """What was made, in the target's own folder."""
    if who is None:
        yield made
        return
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:80]}.", dir=target.absolute().parent)
        try:
            with os.fdopen(handle, "wb") as copy:
                shutil.copyfileobj(file, copy)
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot write {target}: {error.strerror}", hint="Name another file with -o."
        ) from error


def _publish(made: Path, target: Path, before: tuple[int, ...] | None) -> None:
    """Whole or not at all, and never over something that came meanwhile."""
    try:
        with made.open("rb") as file:
            os.fsync(file.fileno())
        if _identity(target) != before:
            raise StoreError(f"{target} was changed meanwhile", hint="It was left as it is: merge again.")
        if before is None:
            _claim(made, target)
        made.replace(target)
    except FileExistsError as error:
        raise _taken(target) from error
    except OSError as error:
        raise StoreError(
            f"cannot write {target}: {error.strerror}", hint="Name another file with -o."
        ) from error


# Samples in the order of their time, as a trace writes them: readers find a stretch by its ends.


_COLUMNS = "node_id, start_ns, process_id, pid, tid, stack_hash, bucket, op_id, flags, count"
_OUT_OF_ORDER = """
    SELECT 1 FROM main.thread_sample a JOIN main.thread_sample b ON b.id = a.id + 1
    WHERE b.start_ns < a.start_ns LIMIT 1"""


def put_in_order(out: sqlite3.Connection) -> None:
    """Rows of several nodes, or of recordings added later, came one after the other."""
    if out.execute(_OUT_OF_ORDER).fetchone() is None:
        return
    out.execute("BEGIN")
    out.execute(
        f"CREATE TEMP TABLE sorted AS SELECT {_COLUMNS} FROM main.thread_sample ORDER BY start_ns, id"
    )
    out.execute("DELETE FROM main.thread_sample")
    out.execute(
        f"INSERT INTO main.thread_sample ({_COLUMNS}) SELECT {_COLUMNS} FROM temp.sorted ORDER BY rowid"
    )
    out.execute("DROP TABLE temp.sorted")
    out.execute("COMMIT")
