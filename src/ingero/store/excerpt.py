"""A part of a recording as a database of its own: a stretch of time, some tables, times moved.

Rows keep their numbers, so nothing has to be looked up: SQLite copies table by table. A stretch of
time takes whole seconds of what was recorded then; names, nodes and the recordings
themselves come along. Both ends of the fan-out use it: a node hands out such a part,
and whoever asked moves its times by the offset of its clock.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingero.errors import StoreError
from ingero.store import opening
from ingero.store.merge.source import MergeInput, attached, open_source, plain_tables, private_database
from ingero.store.stack_rows import drop_unused_frames
from ingero.units import MINUTE, format_bytes

# From which instant on, and what is added; the first holds from the beginning.
Shifts = Sequence[tuple[int, int]]
SHIFTED = "clock_shift"  # key in `meta`, with the recording's number: what was added to its last times

# What of a row says when it began and when it ended, by table.
TIMES: dict[str, tuple[str, str]] = {
    "recording": ("started_ns", "last_ns"),
    "window": ("start_ns", "end_ns"),
    "process": ("COALESCE(first_seen_ns, start_ns, 0)", "COALESCE(end_ns, 9223372036854775807)"),
    "operation_second": ("start_ns", "start_ns + 1000000000"),
    "operation_minute": ("start_ns", f"start_ns + {MINUTE}"),
    "thread_second": ("start_ns", "start_ns + 1000000000"),
    "culprit": ("start_ns", "start_ns + 1000000000"),
    "waker": ("start_ns", "start_ns + 1000000000"),
    "io_second": ("start_ns", "start_ns + 1000000000"),
    "thread_sample": ("start_ns", "start_ns + 1000000000"),
    "thread_estimate": ("start_ns", "start_ns + 1000000000"),
    "overhead_second": ("start_ns", "end_ns"),
    "switch_second": ("start_ns", "end_ns"),
    "annotation": ("start_ns", "COALESCE(end_ns, 9223372036854775807)"),
    "system_sample": ("at_ns", "at_ns + 1"),
    "gpu_sample": ("at_ns", "at_ns + 1"),
    "gpu_process": ("at_ns", "at_ns + 1"),
    "in_flight": ("since_ns", "last_seen_ns + 1"),
    "loss": ("start_ns", "end_ns + 1"),
    "governor_action": ("at_ns", "at_ns + 1"),
    "pod_event": ("at_ns", "at_ns + 1"),
    "finding": ("first_ns", "last_ns + 1"),
    "collective_round": ("last_ns", f"last_ns + {MINUTE}"),
}
DETAIL = ("event", "wait_detail", "block_detail", "tcp_detail", "xid_detail", "collective")
WHOLE = frozenset(
    {
        "node",
        "clock_offset",
        "string",
        "kernel",
        "op",
        "container",
        "container_label",
        "process_label",
        "gpu",
        "clock_step",
        "not_watched",
        "frame",
        "frame_text",
    }
)
APART = frozenset({"meta", "bucket", "stack"})
NAMED = frozenset({"node", "recording", "op", "string", "clock_step"})  # whichever tables are asked for
# Which columns are instants; others that end in _ns are lengths of time.
INSTANTS: dict[str, tuple[str, ...]] = {
    "recording": ("started_ns", "last_ns", "ended_ns"),
    "window": ("start_ns", "end_ns"),
    "clock_step": ("at_ns", "wall_ns"),
    "clock_offset": ("from_ns",),
    "process": ("start_ns", "first_seen_ns", "end_ns"),
    "event": ("ts_ns",),
    "collective_round": ("last_ns",),
    "gpu": ("first_ns", "last_ns"),
    "in_flight": ("since_ns", "first_seen_ns", "last_seen_ns"),
    "loss": ("start_ns", "end_ns"),
    "finding": ("first_ns", "last_ns"),
    "annotation": ("start_ns", "end_ns"),
    "overhead_second": ("start_ns", "end_ns"),
    "switch_second": ("start_ns", "end_ns"),
    "stack": ("last_ns",),
    **dict.fromkeys(
        ("operation_second", "operation_minute", "thread_second", "culprit", "waker", "io_second",
         "thread_sample", "thread_estimate"), ("start_ns",),
    ),
    **dict.fromkeys(
        ("system_sample", "gpu_sample", "gpu_process", "not_watched", "governor_action", "pod_event"),
        ("at_ns",),
    ),
}  # fmt: skip
_IN_FINDINGS = frozenset({"first_ns", "last_ns", "at_ns", "since_ns", "from_ns", "to_ns"})
_CITED = "SELECT stack_hash FROM main.event UNION SELECT stack_hash FROM main.thread_sample"


class TooLargeError(StoreError):
    """More than was allowed."""


@dataclass(frozen=True)
class ExcerptPart:
    """What of a recording: everything unless something is given."""

    from_ns: int | None = None
    to_ns: int | None = None
    tables: frozenset[str] | None = None  # and what names their rows
    max_bytes: int | None = None
    shifts: Mapping[str, Shifts] = field(default_factory=dict)  # by node; others stay as they are

    @property
    def timed(self) -> bool:
        return self.from_ns is not None or self.to_ns is not None


def write_excerpt(source: Path, target: Path, part: ExcerptPart) -> None:
    """Into a new file, which is only of use when this returns."""
    folder = target.with_name(f"{target.name}.inputs")
    folder.mkdir(mode=0o700)
    try:
        opened = open_source(source, folder, None)
        target.touch(mode=0o600)
        with contextlib.closing(private_database(target)) as out:
            _copy(out, opened, part, source)
    finally:
        for each in folder.iterdir():
            each.unlink()
        folder.rmdir()


def _copy(out: sqlite3.Connection, opened: MergeInput, part: ExcerptPart, source: Path) -> None:
    if part.max_bytes is not None:
        page = int(out.execute("PRAGMA page_size").fetchone()[0])
        out.execute(f"PRAGMA max_page_count = {max(64, part.max_bytes // page)}")
    try:
        with attached(out, opened):
            _tables(out, part)
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        if isinstance(error, sqlite3.Error) and opening.code_of(error) == sqlite3.SQLITE_FULL:
            raise TooLargeError(
                f"that part of {source} is larger than {format_bytes(part.max_bytes)}",
                hint="Ask for a shorter time, as in --since 5m.",
            ) from error
        raise StoreError(f"cannot copy {source}: {error}", hint="The file is damaged.") from error
    out.execute("PRAGMA incremental_vacuum")


def _tables(out: sqlite3.Connection, part: ExcerptPart) -> None:
    theirs, ours = plain_tables(out, "src"), plain_tables(out, "main")
    shift = _shifting(out, part)
    wanted = part.tables
    for table in (*TIMES, *DETAIL, *sorted(WHOLE)):
        both = sorted(ours.get(table, frozenset()) & theirs.get(table, frozenset()))
        if both and (wanted is None or table in wanted or table in NAMED):
            values = ", ".join(shift(table, name) for name in both)
            listed = ", ".join(f'"{name}"' for name in both)
            where = _where(out, table, part)
            out.execute(f"INSERT INTO main.{table} ({listed}) SELECT {values} FROM src.{table} s{where}")
    out.execute(
        "INSERT OR IGNORE INTO main.meta SELECT key, value FROM src.meta"
        " WHERE key GLOB 'source:*' OR key GLOB 'not_watched:*'"
    )
    if wanted is None or "stack" in wanted:
        cited = f" WHERE hash IN ({_CITED})" if part.timed and (wanted is None or "event" in wanted) else ""
        columns = "hash, frames, last_ns"
        out.execute(f"INSERT INTO main.stack ({columns}) SELECT {columns} FROM src.stack{cited}")
        if cited:
            drop_unused_frames(out)
    if part.shifts:
        _findings(out, part)
        _note_shifts(out, part)


def _where(out: sqlite3.Connection, table: str, part: ExcerptPart) -> str:
    if not part.timed:
        return ""
    from_ns, to_ns = part.from_ns or 0, part.to_ns or 2**63 - 1
    if table in TIMES:
        begins, ends = TIMES[table]
        return f" WHERE {begins} < {to_ns} AND {ends} > {from_ns}"
    if table not in DETAIL:
        return ""
    column = "id" if table == "event" else "event_id"
    # Windows know which events are theirs: far quicker than looking at the time of each.
    ranges = out.execute(
        "SELECT MIN(first_id), MAX(last_id) FROM src.window WHERE end_ns > ? AND start_ns < ?"
        " AND last_id >= first_id GROUP BY recording_id, node_id",
        (from_ns, to_ns),
    ).fetchall()
    return f" WHERE {' OR '.join(f's.{column} BETWEEN {a} AND {b}' for a, b in ranges) or 'false'}"


def _shifting(out: sqlite3.Connection, part: ExcerptPart) -> Callable[[str, str], str]:
    """SQL for a column's value; instants of moved nodes get what their stretch needs."""
    ids = {
        int(number): [(int(at), int(by)) for at, by in part.shifts[name]]
        for number, name in out.execute("SELECT id, name FROM src.node").fetchall()
        if any(by for _, by in part.shifts.get(name, ()))
    }
    if not ids:
        return lambda _, column: f's."{column}"'
    only = next(iter(ids)) if len(ids) == 1 and len(part.shifts) == 1 else None

    def value(table: str, column: str) -> str:
        plain = f's."{column}"'
        if column not in INSTANTS.get(table, ()):
            return plain
        if table == "collective_round":  # of no node; in a recording of one, it is that one's
            return f"{plain} + {_amount(plain, ids[only])}" if only is not None else plain
        if table == "stack":
            return plain
        cases = " ".join(
            f"WHEN {int(number)} THEN {_amount(plain, shifts)}" for number, shifts in ids.items()
        )
        return f"{plain} + CASE s.node_id {cases} ELSE 0 END"

    return value


def _amount(column: str, shifts: Sequence[tuple[int, int]]) -> str:
    """The last stretch that has begun counts."""
    if len(shifts) == 1:
        return str(shifts[0][1])
    later = " ".join(f"WHEN {column} >= {at} THEN {by}" for at, by in reversed(shifts[1:]))
    return f"CASE {later} ELSE {shifts[0][1]} END"


def _note_shifts(out: sqlite3.Connection, part: ExcerptPart) -> None:
    """So that nobody takes it for the recording as the node has it."""
    found = out.execute("SELECT r.id, n.name FROM main.recording r JOIN main.node n ON n.id = r.node_id")
    for number, name in found.fetchall():
        shifts = part.shifts.get(name)
        if shifts:
            key, value = f"{SHIFTED}:{number}", str(shifts[-1][1])
            out.execute("INSERT OR REPLACE INTO main.meta VALUES (?, ?)", (key, value))


def _findings(out: sqlite3.Connection, part: ExcerptPart) -> None:
    """A finding's own text tells its times too."""
    rows = out.execute(
        "SELECT f.id, n.name, f.json FROM main.finding f JOIN main.node n ON n.id = f.node_id"
    ).fetchall()
    for number, name, text in rows:
        shifts = part.shifts.get(name)
        if not shifts or not isinstance(text, str):
            continue
        with contextlib.suppress(ValueError, RecursionError):
            moved = json.dumps(_moved(json.loads(text), shifts), ensure_ascii=False, separators=(",", ":"))
            out.execute("UPDATE main.finding SET json = ? WHERE id = ?", (moved, number))


def _moved(value: Any, shifts: Shifts) -> Any:
    if isinstance(value, list):
        return [_moved(each, shifts) for each in value]
    if not isinstance(value, dict):
        return value
    moved = {key: _moved(each, shifts) for key, each in value.items()}
    for key in moved.keys() & _IN_FINDINGS:
        if isinstance(moved[key], int):
            moved[key] += shift_at(moved[key], shifts)
    if isinstance(moved.get("episodes"), list):
        moved["episodes"] = [[at + shift_at(at, shifts) for at in each] for each in moved["episodes"]]
    return moved


def shift_at(at_ns: int, shifts: Shifts) -> int:
    return next((by for begin, by in reversed(shifts) if at_ns >= begin), shifts[0][1] if shifts else 0)
