"""The rows of one part, copied by SQLite itself: no row becomes a Python object.

Numbers that are local to a file are replaced on the way, through temporary tables
of old and new ones.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field

from ingero.errors import StoreError
from ingero.store.merge import findings, numbers, stacks, sums
from ingero.store.merge.rules import MAPPED, PLAIN_TABLES, Move, insert_statement
from ingero.store.merge.source import Part, Source, attached, plain_tables

Columns = dict[str, frozenset[str]]


@dataclass(slots=True)
class Copying:
    """One source being copied into the result."""

    out: sqlite3.Connection
    source: Source
    columns: Columns = field(default_factory=dict)  # those that both have, by table
    copied: Counter[str] = field(default_factory=Counter)  # rows by table


def copy_source(out: sqlite3.Connection, source: Source, parts: list[Part]) -> Counter[str]:
    """Everything of these parts; returns how many rows of each table."""
    with attached(out, source):
        theirs, ours = plain_tables(out, "src"), plain_tables(out, "main")
        work = Copying(out, source, {name: ours[name] & theirs.get(name, frozenset()) for name in ours})
        for name in MAPPED:
            out.execute(f"DROP TABLE IF EXISTS temp.{name}_map")
            out.execute(f"CREATE TEMP TABLE {name}_map (old INTEGER PRIMARY KEY, new INTEGER)")
        numbers.names(out)
        stacks_change = stacks.stacks(out)
        for part in parts:
            _part(work, part, stacks_change)
        whole = len(parts) == len(source.parts)
        sums.rounds(out, [part.node_id for part in parts], whole)
        if whole:
            _require_all(work)
    return work.copied


def _part(work: Copying, part: Part, stacks_change: bool) -> None:
    out = work.out
    new_node, shift = numbers.node(out, part)
    move = Move(part.node_id, new_node, shift, stacks_change)
    numbers.cgroups(out, part.node, new_node)
    numbers.recordings(out, move, work.columns["recording"])
    numbers.processes(out, move, work.columns["process"])
    for table in PLAIN_TABLES:
        statement = insert_statement(table, work.columns[table], move)
        work.copied[table] += out.execute(statement).rowcount if statement else 0
    sums.operations(out, move, work.columns)
    findings.findings(out, move, part.node, work.columns["finding"])


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
