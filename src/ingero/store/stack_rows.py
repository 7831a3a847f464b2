"""Stacks as rows: every text and every frame once, a stack a short list of frames.

A stack is needed as long as somebody cites it; how long that is, its `last_ns` says.
It is brought up to date once a minute, not with every call that cites it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

import numpy as np

from ingero.model.stack import Frame, ResolvedStack
from ingero.model.window import StackHashes
from ingero.units import MINUTE, clean

CITED_NS = MINUTE  # how much older than the truth `last_ns` may be
MAX_FRAMES = 256
TEXT = 500
REMEMBERED = 4_000  # stacks, frames and texts, half a KB each; more are looked up again
KINDS = ("python", "native", "note")
FrameRow = tuple[str, int, int, int, int]


class StackRows:
    """The stacks of one database, within the caller's transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._texts: dict[str, int] = {}
        self._frames: dict[Frame, int] = {}
        self._cited: dict[int, int] = {}  # stack: its last_ns

    def forget(self) -> None:
        """After a rollback, or when rows were deleted: look everything up again."""
        self._texts.clear()
        self._frames.clear()
        self._cited.clear()

    def save(self, stacks: Iterable[ResolvedStack], at_ns: int) -> None:
        """Store stacks; one told again replaces what was known of it."""
        rows = [(each.hash, self._numbers(each.frames), at_ns) for each in stacks if each.hash]
        self._connection.executemany(
            "INSERT INTO stack VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE SET"
            " frames = excluded.frames, last_ns = MAX(last_ns, excluded.last_ns)",
            rows,
        )
        self._cited.update((number, at_ns) for number, _, _ in rows)

    def _numbers(self, frames: Sequence[Frame]) -> str:
        numbers = [self._frame(frame) for frame in frames[:MAX_FRAMES]]
        return json.dumps(numbers, separators=(",", ":"))

    def _frame(self, frame: Frame) -> int:
        known = self._frames.get(frame)
        if known is None:
            if len(self._frames) > REMEMBERED:
                self._frames.clear()
            known = self._frames[frame] = self._stored(self._row(frame))
        return known

    def _row(self, frame: Frame) -> FrameRow:
        kind = frame.kind if frame.kind in KINDS else "native"
        line = frame.line if frame.line and 0 < frame.line < 1 << 31 else 0
        return (kind, self._text(frame.function), self._text(frame.file), line, self._text(frame.module))

    def _stored(self, row: FrameRow) -> int:
        columns = "kind, function_id, file_id, line, module_id"
        self._connection.execute(f"INSERT OR IGNORE INTO frame ({columns}) VALUES (?, ?, ?, ?, ?)", row)
        found = self._connection.execute(
            "SELECT id FROM frame WHERE kind = ? AND function_id = ? AND file_id = ? AND line = ?"
            " AND module_id = ?",
            row,
        ).fetchone()
        return int(found[0])

    def _text(self, text: str | None) -> int:
        """Text of a traced process: without anything that steers a terminal, and not endless."""
        if not text:
            return 0
        known = self._texts.get(text)
        if known is None:
            if len(self._texts) > REMEMBERED:
                self._texts.clear()
            known = self._texts[text] = self._text_id(clean(text, TEXT))
        return known

    def _text_id(self, text: str) -> int:
        if not text:
            return 0
        self._connection.execute("INSERT OR IGNORE INTO frame_text (text) VALUES (?)", (text,))
        found = self._connection.execute("SELECT id FROM frame_text WHERE text = ?", (text,)).fetchone()
        return int(found[0])

    def cite(self, hashes: Sequence[StackHashes], at_ns: int) -> None:
        """These stacks are in use."""
        old = [
            number
            for number in np.unique(np.concatenate(hashes)).tolist()
            if number and at_ns - self._cited.get(number, 0) >= CITED_NS
        ]
        self._connection.executemany(
            "UPDATE stack SET last_ns = MAX(last_ns, ?) WHERE hash = ?", [(at_ns, number) for number in old]
        )
        if len(self._cited) > REMEMBERED:
            self._cited.clear()
        self._cited.update((number, at_ns) for number in old)


def drop_uncited(connection: sqlite3.Connection, most: int) -> int:
    """Delete stacks older than everything that could cite them; returns how many went."""
    oldest = _oldest_citing(connection)
    if oldest is None:
        return 0
    return connection.execute(
        "DELETE FROM stack WHERE hash IN (SELECT hash FROM stack WHERE last_ns < ? ORDER BY last_ns LIMIT ?)",
        (oldest - 2 * CITED_NS, most),
    ).rowcount


def _oldest_citing(connection: sqlite3.Connection) -> int | None:
    """When the oldest event or sample was; an event's number rises with time on its node."""
    nodes = connection.execute("SELECT id FROM node").fetchall()
    found = [
        row[0]
        for (node,) in nodes
        for row in connection.execute(
            "SELECT ts_ns FROM event WHERE id >= ? << 48 ORDER BY id LIMIT 1", (node,)
        )
    ]
    sample = connection.execute("SELECT MIN(start_ns) FROM thread_sample").fetchone()[0]
    return min([*found, *([] if sample is None else [sample])], default=None)


def drop_unused_frames(connection: sqlite3.Connection) -> int:
    """Delete frames and texts that no stack has."""
    frames = connection.execute(
        "DELETE FROM frame WHERE id NOT IN (SELECT j.value FROM stack k CROSS JOIN json_each(k.frames) j)"
    ).rowcount
    connection.execute(
        "DELETE FROM frame_text WHERE id NOT IN (SELECT function_id FROM frame"
        " UNION SELECT file_id FROM frame UNION SELECT module_id FROM frame)"
    )
    return frames
