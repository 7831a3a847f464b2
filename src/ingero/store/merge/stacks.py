"""Stacks: each once, told apart by what is in them; their frames and texts likewise."""

from __future__ import annotations

import sqlite3

from ingero.model.stack import Frame, resolved

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
