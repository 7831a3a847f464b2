"""Findings: their key begins with their recording's number, and their proofs name events."""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any

from ingero.store.merge.rules import Move
from ingero.store.schema import NODE_SHIFT, SEQ_MASK

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
