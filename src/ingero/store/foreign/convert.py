"""The conversion: each table of the file in turn, in one transaction.

The file is only read. Stored causal chains do not come over: they count things that
happened in the same window, and ours is to account for time.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ingero.errors import StoreError
from ingero.model.stack import Frame, ResolvedStack
from ingero.store.foreign import events, processes, recordings, source, threads, totals
from ingero.store.foreign.source import Conversion, GoDatabase
from ingero.store.names import Names
from ingero.store.stack_rows import StackRows
from ingero.units import clean

NAMELESS = "unknown"


def convert_database(go: GoDatabase, out: sqlite3.Connection, node: str | None = None) -> bool:
    """Write everything of the file into a database of our schema; False if it is there already.

    `node` names what the file gives no node.
    """
    with _transaction(out), _snapshot(go):
        source.prepare(out)
        shared = Conversion(go, out, Names(out), _default_node(go, node))
        recordings.nodes(shared)
        recordings.recordings(shared)
        there = recordings.already_there(shared)
        if there:
            for recording in shared.recordings:
                _forget(out, recording.id)
        else:
            _everything(shared)
        source.drop(out)
    return not there


def _everything(shared: Conversion) -> None:
    processes.comms(shared)
    processes.processes(shared)
    processes.containers(shared)
    recordings.samples(shared)
    stacks(shared)
    events.operations(shared)
    events.events(shared)
    events.missing_rows(shared)
    events.windows(shared)
    events.block_seconds(shared)
    aggregates = totals.read(shared)
    totals.totals(shared, aggregates)
    threads.threads(shared, aggregates)  # last: it renames switches to what they were waits for
    _agent(shared)
    _losses(shared)


def _default_node(go: GoDatabase, forced: str | None) -> str:
    if go.has("sessions", "node"):
        sql = f"SELECT MAX({go.text('sessions', 'node', 300)}) FROM sessions"
        found = next(go.rows(sql), (None,))[0]
        if found:
            return str(found)
    return forced or NAMELESS


@contextmanager
def _transaction(out: sqlite3.Connection) -> Iterator[None]:
    """Also inside a transaction of the caller's."""
    out.execute("SAVEPOINT foreign_import")
    try:
        yield
    except BaseException as error:
        out.execute("ROLLBACK TO foreign_import")
        out.execute("RELEASE foreign_import")
        if isinstance(error, (OverflowError, UnicodeError)):
            raise StoreError(f"the recording holds a value that cannot be stored: {error}") from error
        raise
    out.execute("RELEASE foreign_import")


@contextmanager
def _snapshot(go: GoDatabase) -> Iterator[None]:
    """One state of the file, also while the tool still writes it."""
    go.connection.execute("BEGIN")
    try:
        yield
    finally:
        if go.connection.in_transaction:
            go.connection.execute("ROLLBACK")


def _forget(out: sqlite3.Connection, recording_id: int) -> None:
    out.execute("DELETE FROM recording WHERE id = ?", (recording_id,))
    out.execute(
        "DELETE FROM meta WHERE key IN (?, ?)", (f"source:{recording_id}", f"not_watched:{recording_id}")
    )


def _agent(shared: Conversion) -> None:
    for recording in shared.recordings:
        own = [pid for node_id, pid in shared.agents if node_id == recording.node_id]
        if len(own) == 1:
            shared.out.execute("UPDATE recording SET agent_pid = ? WHERE id = ?", (own[0], recording.id))


def _losses(shared: Conversion) -> None:
    """What could not be taken over, for the whole time the file covers."""
    if not shared.recordings:
        return
    first = shared.recordings[0]
    from_ns = min(each.started_ns for each in shared.recordings)
    to_ns = max(each.last_ns for each in shared.recordings)
    shared.out.executemany(
        "INSERT INTO loss VALUES (?, ?, ?, ?, ?)",
        [
            (first.node_id, from_ns, to_ns, shared.names.string(reason), count)
            for reason, count in sorted(shared.problems.items())
            if count
        ],
    )


# Call stacks: compact JSON per stack becomes rows, the innermost frame first.
#
# A frame with a Python file or function is a Python frame; the native frame under it
# is the interpreter and says nothing. What cannot be read is counted and left out.


MAX_FRAMES = 256
MAX_JSON = 1 << 20
TEXT = 500
_OFFSET = re.compile(r"\+0x[0-9a-f]+$")


def stacks(work: Conversion) -> None:
    go = work.go
    if not go.has("stack_traces", "hash", "frames"):
        return
    frames = go.text("stack_traces", "frames", MAX_JSON + 1)
    rows, last_ns = StackRows(work.out), max((each.last_ns for each in work.recordings), default=0)
    sql = f"SELECT {go.whole('stack_traces', 'hash')}, {frames} FROM stack_traces"
    for number, text in go.rows(sql):
        if number is None or text is None:
            continue  # only addresses: nothing to show
        whole = tuple(_frames(text))
        if whole:
            rows.save([ResolvedStack(number, whole)], last_ns)
        else:
            work.problems["stack_unreadable"] += 1


def _frames(text: str) -> Iterator[Frame]:
    try:
        frames = json.loads(text) if len(text) <= MAX_JSON else None
    except (ValueError, RecursionError):
        return
    if isinstance(frames, list):
        yield from (_frame(frame) for frame in frames[:MAX_FRAMES] if isinstance(frame, dict))


def _frame(frame: dict[str, Any]) -> Frame:
    name, file = _word(frame.get("pfn")), _word(frame.get("pf"))
    if file or name:
        return Frame("python", name or "", file, _line(frame.get("pl")), None)
    symbol, place, line = _word(frame.get("s")), _word(frame.get("f")), _line(frame.get("l"))
    function = _OFFSET.sub("", symbol) if symbol else ""
    return (
        Frame("native", function, place, line, None) if line else Frame("native", function, None, None, place)
    )


def _word(value: Any) -> str | None:
    return clean(value, TEXT) or None if isinstance(value, str) else None


def _line(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31 else None
