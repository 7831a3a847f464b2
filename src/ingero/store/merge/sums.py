"""Sums: rounds of collectives, and operations by second and by minute."""

from __future__ import annotations

import sqlite3
from typing import Any

from ingero.store.merge.rules import Move, insert_statement, mapped
from ingero.store.rollup import merged, roll_up
from ingero.store.schema import NODE_SHIFT, SEQ_MASK

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
