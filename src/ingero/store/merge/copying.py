"""The rows of one part, copied by SQLite itself: no row becomes a Python object.

Numbers that are local to a file are replaced on the way, through temporary tables
of old and new ones.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ingero.errors import StoreError
from ingero.model.stack import Frame, resolved
from ingero.store.merge import rules
from ingero.store.merge.rules import MAPPED, PLAIN_TABLES, Move, insert_statement, mapped
from ingero.store.merge.source import MergeInput, Part, attached, plain_tables
from ingero.store.rollup import merged, roll_up
from ingero.store.schema import NODE_SHIFT, SEQ_MASK

Columns = dict[str, frozenset[str]]


@dataclass(slots=True)
class Copying:
    """One source being copied into the result."""

    out: sqlite3.Connection
    source: MergeInput
    columns: Columns = field(default_factory=dict)  # those that both have, by table
    copied: Counter[str] = field(default_factory=Counter)  # rows by table


def copy_source(out: sqlite3.Connection, source: MergeInput, parts: list[Part]) -> Counter[str]:
    """Everything of these parts; returns how many rows of each table."""
    with attached(out, source):
        theirs, ours = plain_tables(out, "src"), plain_tables(out, "main")
        work = Copying(out, source, {name: ours[name] & theirs.get(name, frozenset()) for name in ours})
        for name in MAPPED:
            out.execute(f"DROP TABLE IF EXISTS temp.{name}_map")
            out.execute(f"CREATE TEMP TABLE {name}_map (old INTEGER PRIMARY KEY, new INTEGER)")
        rules.names(out)
        stacks_change = stacks(out)
        for part in parts:
            _part(work, part, stacks_change)
        whole = len(parts) == len(source.parts)
        rounds(out, [part.node_id for part in parts], whole)
        if whole:
            _require_all(work)
    return work.copied


def _part(work: Copying, part: Part, stacks_change: bool) -> None:
    out = work.out
    new_node, shift = rules.node(out, part)
    move = Move(part.node_id, new_node, shift, stacks_change)
    rules.cgroups(out, part.node, new_node)
    rules.recordings(out, move, work.columns["recording"])
    rules.processes(out, move, work.columns["process"])
    for table in PLAIN_TABLES:
        statement = insert_statement(table, work.columns[table], move)
        work.copied[table] += out.execute(statement).rowcount if statement else 0
    operations(out, move, work.columns)
    findings(out, move, part.node, work.columns["finding"])


def _require_all(work: Copying) -> None:
    """A row that belongs to no node would be left behind without a word."""
    for table, meeting in PLAIN_TABLES.items():
        if meeting or not work.columns[table]:
            continue
        there = work.out.execute(f"SELECT COUNT(*) FROM src.{table}").fetchone()[0]
        missing = there - work.copied[table]
        if missing:
            raise StoreError(
                f"{work.source.path} has {missing:,} rows in {table} that belong to no node",
                hint="The file is damaged.",
            )


# Findings: their key begins with their recording's number, and their proofs name events.


_RECORDING_KEY = re.compile(r"(\d{1,18}):(.*)", re.S)


def findings(out: sqlite3.Connection, move: Move, name: str, both: frozenset[str]) -> None:
    """Their key begins with the recording's number, and they name events."""
    names = sorted(both - {"id", "node_id", "key", "json"})
    listed = ", ".join(names)
    rows = out.execute(
        f"SELECT id, key, json, {listed} FROM src.finding WHERE node_id = ? ORDER BY id", (move.old_node,)
    ).fetchall()
    marks = ", ".join("?" * (len(names) + 4))
    base = (move.new_node << NODE_SHIFT) + move.shift
    for number, key, text, *rest in rows:
        values = (
            base + (number & SEQ_MASK),
            move.new_node,
            _key(out, str(key)),
            _moved(text, name, move.shift),
        )
        out.execute(f"INSERT INTO main.finding (id, node_id, key, json, {listed}) VALUES ({marks})",
                    (*values, *rest))  # fmt: skip


def _key(out: sqlite3.Connection, key: str) -> str:
    found = _RECORDING_KEY.fullmatch(key)
    new = out.execute("SELECT new FROM temp.recording_map WHERE old = ?", (int(found[1]),)) if found else None
    row = new.fetchone() if new else None
    if found is None or row is None:  # not from one of its recordings: no two may meet
        top = out.execute("SELECT COALESCE(MAX(id), 0) FROM main.finding").fetchone()[0]
        return f"{key}@{top + 1}"
    return f"{row[0]}:{found[2]}"


def _moved(text: Any, name: str, shift: int) -> Any:
    """The finding's JSON with the events' new names in it."""
    if not shift or not isinstance(text, str):
        return text
    try:
        return json.dumps(_renamed(json.loads(text), name, shift), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return text


def _renamed(value: Any, name: str, shift: int) -> Any:
    if isinstance(value, list):
        return [_renamed(each, name, shift) for each in value]
    if not isinstance(value, dict):
        return value
    moved = {key: _renamed(each, name, shift) for key, each in value.items()}
    ids = moved.get("event_ids")
    if isinstance(ids, list):
        moved["event_ids"] = [_renamed_id(each, name, shift) for each in ids]
    return moved


def _renamed_id(event_id: Any, name: str, shift: int) -> Any:
    node, _, seq = event_id.rpartition(":") if isinstance(event_id, str) else ("", "", "")
    return f"{name}:{int(seq) + shift}" if node == name and seq.isdecimal() else event_id


# Stacks: each once, told apart by what is in them; their frames and texts likewise.


_TEXTS = ("function_id", "file_id", "module_id")
_FRAME = ("kind", "line", *_TEXTS)
# A stack with the result's numbers. 0, which is no frame, keeps the place of one that leads nowhere.
_RENUMBERED = """
    SELECT s.hash AS hash, s.last_ns AS last_ns, (
        SELECT json_group_array(new) FROM (
            SELECT COALESCE(m.new, 0) AS new
            FROM json_each(s.frames) j
            LEFT JOIN temp.frame_map m ON m.old = j.value
            ORDER BY j.key)
        ) AS frames
    FROM src.stack s"""
_SHOWN = """
    SELECT f.kind, COALESCE(a.text, ''), c.text, NULLIF(f.line, 0), m.text
    FROM json_each(?) j
    LEFT JOIN main.frame f ON f.id = j.value
    LEFT JOIN main.frame_text a ON a.id = f.function_id
    LEFT JOIN main.frame_text c ON c.id = f.file_id
    LEFT JOIN main.frame_text m ON m.id = f.module_id
    ORDER BY j.key"""


def stacks(out: sqlite3.Connection) -> bool:
    """Each stack once. Whether some got another hash: two tools may give one hash to two stacks."""
    _frames(out)
    out.execute("DROP TABLE IF EXISTS temp.stack_new")
    out.execute(f"CREATE TEMP TABLE stack_new AS {_RENUMBERED}")
    clashing = out.execute(
        "SELECT s.hash, s.frames FROM temp.stack_new s JOIN main.stack m ON m.hash = s.hash"
        " WHERE m.frames <> s.frames"
    ).fetchall()
    for old, frames in clashing:
        new = _hash_of(out, frames)  # from a third input it is the same
        out.execute("INSERT INTO temp.stack_map VALUES (?, ?)", (old, new))
        out.execute("UPDATE temp.stack_new SET hash = ? WHERE hash = ?", (new, old))
    out.execute(
        "INSERT INTO main.stack (hash, frames, last_ns) SELECT hash, frames, last_ns FROM temp.stack_new"
        " WHERE true ON CONFLICT (hash) DO UPDATE SET last_ns = MAX(last_ns, excluded.last_ns)"
    )
    out.execute("DROP TABLE temp.stack_new")
    return bool(clashing)


def _hash_of(out: sqlite3.Connection, frames: str) -> int:
    shown = [Frame(*row) for row in out.execute(_SHOWN, (frames,))]
    return resolved(shown).hash


def _frames(out: sqlite3.Connection) -> None:
    """The same text and the same frame are the same row."""
    out.execute("INSERT OR IGNORE INTO main.frame_text (text) SELECT text FROM src.frame_text ORDER BY id")
    out.execute(
        "INSERT INTO temp.frame_text_map SELECT s.id, m.id FROM src.frame_text s"
        " JOIN main.frame_text m ON m.text = s.text"
    )
    text = "COALESCE((SELECT new FROM temp.frame_text_map WHERE old = s.{0}), 0)"
    values = {name: text.format(name) if name in _TEXTS else f"s.{name}" for name in _FRAME}
    out.execute(
        f"INSERT OR IGNORE INTO main.frame ({', '.join(values)})"
        f" SELECT {', '.join(values.values())} FROM src.frame s ORDER BY s.id"
    )
    same = " AND ".join(f"m.{name} = {value}" for name, value in values.items())
    out.execute(f"INSERT INTO temp.frame_map SELECT s.id, m.id FROM src.frame s JOIN main.frame m ON {same}")


# Sums: rounds of collectives, and operations by second and by minute.


_MINUTE = (
    "start_ns", "node_id", "process_id", "op_id", "caller", "pid", "count", "exact", "count_error", "sum_ns",
    "min_ns", "max_ns", "bytes", "errors", "slots",
)  # fmt: skip
_KEY = _MINUTE[:5]
Groups = dict[tuple[Any, ...], list[tuple[Any, ...]]]


def rounds(out: sqlite3.Connection, old_nodes: list[int], whole: bool) -> None:
    """When the ranks of each collective arrived: ranks on other nodes are in other parts."""
    meeting = (
        " ON CONFLICT (comm_hash, seq, op_id) DO UPDATE SET seen = seen + excluded.seen,"
        " rank_sum = rank_sum + excluded.rank_sum, last_ns = MAX(last_ns, excluded.last_ns)"
    )
    op = "(SELECT new FROM temp.op_map WHERE old = {})"
    if whole:
        out.execute(
            "INSERT INTO main.collective_round"
            f" SELECT comm_hash, seq, {op.format('s.op_id')}, nranks, seen, rank_sum, last_ns"
            f" FROM src.collective_round s WHERE true{meeting}"
        )
        return
    for node_id in old_nodes:
        first = node_id << NODE_SHIFT
        out.execute(
            "INSERT INTO main.collective_round"
            f" SELECT c.comm_hash, c.seq, {op.format('e.op_id')}, MAX(c.nranks), COUNT(*), SUM(c.rank),"
            " MAX(e.ts_ns) FROM src.collective c JOIN src.event e ON e.id = c.event_id"
            " WHERE c.event_id BETWEEN ? AND ? AND c.comm_hash IS NOT NULL AND c.seq IS NOT NULL"
            " AND c.rank IS NOT NULL AND c.nranks > 0 AND c.peer IS NULL"
            f" GROUP BY c.comm_hash, c.seq, e.op_id HAVING true{meeting}",
            (first, first + SEQ_MASK),
        )


def operations(out: sqlite3.Connection, move: Move, columns: dict[str, frozenset[str]]) -> None:
    """Seconds and minutes. Minutes hold the seconds up to one row: so those go first, then the rest."""
    both = columns["operation_second"]
    rolled = f"(SELECT rolled_id FROM src.node WHERE id = {move.old_node})"
    before = insert_statement("operation_second", both, move, f" AND s.id <= {rolled} ORDER BY s.id")
    if out.execute(before).rowcount > 0:
        last = out.execute("SELECT last_insert_rowid()").fetchone()[0]
        out.execute("UPDATE main.node SET rolled_id = ? WHERE id = ?", (last, move.new_node))
    out.execute(insert_statement("operation_second", both, move, f" AND s.id > {rolled} ORDER BY s.id"))
    if columns["operation_minute"]:
        _minutes(out, move)
    while roll_up(out, move.new_node):
        pass


def _minutes(out: sqlite3.Connection, move: Move) -> None:
    values = {name: mapped(name, move) for name in _MINUTE}
    values["process_id"] = f"COALESCE({values['process_id']}, 0)"  # deleted since
    named = ", ".join(f"{value} AS {name}" for name, value in values.items())
    theirs = f"SELECT {named} FROM src.operation_minute s WHERE s.node_id = {move.old_node}"
    groups = _meeting(out, theirs)
    out.execute(f"INSERT OR IGNORE INTO main.operation_minute ({', '.join(_MINUTE)}) {theirs}")
    marks = ", ".join("?" * len(_MINUTE))
    out.executemany(f"INSERT OR REPLACE INTO main.operation_minute VALUES ({marks})", merged(groups))


def _meeting(out: sqlite3.Connection, theirs: str) -> Groups:
    """Rows with one key, to be added up: of a process that is in two parts, in the minute in which one
    recording ended and the other began; and of processes deleted since, which are nobody now."""
    key = " AND ".join(f"m.{name} = t.{name}" for name in _KEY)
    here = f"SELECT m.* FROM main.operation_minute m JOIN ({theirs}) t ON {key}"
    there = (
        f"SELECT * FROM ({theirs}) t WHERE process_id = 0"
        f" OR EXISTS (SELECT 1 FROM main.operation_minute m WHERE {key})"
    )
    groups: Groups = {}
    for row in {*out.execute(here)}:  # once, though several may join it
        groups[row[:5]] = [row]
    for row in out.execute(there):
        groups.setdefault(row[:5], []).append(row)
    return {found: rows for found, rows in groups.items() if len(rows) > 1}
