"""The rows a timeline is made from: which events lie in the time asked for.

SQLite sorts, so that one track is read after the other and memory stays small
however long the recording is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ingero.serve.answers.track_names import Tracks
from ingero.serve.answers.tracks import Track
from ingero.serve.answers.window import TimeRange
from ingero.store.reader import Reader
from ingero.store.schema import NODE_SHIFT
from ingero.units import clean

FETCH = 5_000
STACK_FRAMES, MOST_STACKS, MOST_KERNELS = 64, 20_000, 20_000
Row = tuple[Any, ...]
Who = tuple[Any, ...]  # node, row of the process, PID, TID
tidy = lru_cache(maxsize=10_000)(clean)  # the same few names come again and again


@dataclass(slots=True)
class Asked:
    """What a timeline is of, and the tracks it has so far."""

    reader: Reader
    when: TimeRange
    pid: int | None = None
    tracks: Tracks = field(init=False)
    ops: dict[int, tuple[str, str]] = field(init=False)  # layer, name
    _stacks: dict[int, str] = field(default_factory=dict)
    _kernels: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tracks = Tracks(self.reader)
        rows = self.reader.rows("SELECT id, layer, name FROM op")
        self.ops = {number: (str(layer), clean(str(name), 200)) for number, layer, name in rows}

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> Iterator[Row]:
        cursor = self.reader.connection.execute(sql, parameters)
        while rows := cursor.fetchmany(FETCH):
            yield from rows

    def events(self, *layers: str, lasting: bool = True) -> str:
        """SQL that is true for events `e` of some layers that overlap the time asked for."""
        numbers = ", ".join(str(number) for number, (layer, _) in self.ops.items() if layer in layers)
        firsts = self.reader.rows(
            "SELECT node_id, MIN(first_id) FROM window WHERE end_ns > ? AND start_ns < ? GROUP BY node_id",
            (self.when.from_ns, self.when.to_ns),
        )  # there is no last one: a call is stored when it returns
        ids = [f"e.id BETWEEN {first} AND {((node + 1) << NODE_SHIFT) - 1}" for node, first in firsts]
        ended = f"e.ts_ns + COALESCE(e.duration_ns, 0) >= {self.when.from_ns}"
        length = f"e.duration_ns IS {'NOT ' if lasting else ''}NULL"
        place = f"({' OR '.join(ids) or 'false'}) AND e.op_id IN ({numbers})"
        return f"{place} AND {length} AND e.ts_ns < {self.when.to_ns} AND {ended}{self.of_process('e')}"

    def stack(self, stack_hash: int) -> str:
        """The frames of a stack, the innermost first; empty where nothing is known of it."""
        text = self._stacks.get(stack_hash)
        if text is None:
            rows = self.reader.rows(
                "SELECT function, file, line, module FROM stacks WHERE stack_hash = ? ORDER BY depth LIMIT ?",
                (stack_hash, STACK_FRAMES),
            )
            text = "\n".join(_frame(*row) for row in rows)
            if len(self._stacks) < MOST_STACKS:
                self._stacks[stack_hash] = text
        return text

    def kernel(self, kernel_id: int) -> str:
        """What a kernel is called; empty where it has no name."""
        text = self._kernels.get(kernel_id)
        if text is None:
            rows = self.reader.rows("SELECT name FROM kernel WHERE id = ?", (kernel_id,))
            text = clean(str(rows[0][0]), 1000) if rows else ""
            if len(self._kernels) < MOST_KERNELS:
                self._kernels[kernel_id] = text
        return text

    def of_process(self, table: str) -> str:
        return "" if self.pid is None else f" AND {table}.pid = {self.pid}"

    @property
    def between(self) -> tuple[int, int]:
        return self.when.from_ns, self.when.to_ns

    def thread(self, who: Who, comm: str | None) -> Track:
        node_id, process_id, pid, tid = who
        return self.tracks.thread(self.tracks.process(node_id, process_id, pid, comm), tid, comm)

    def process_at(self, node_id: int, pid: int | None, at_ns: int) -> int | None:
        """The row of the process that had a PID at an instant."""
        begun = "COALESCE(start_ns, first_seen_ns, 0)"
        rows = self.reader.rows(
            f"SELECT id FROM process WHERE node_id = ? AND pid = ? AND {begun} <= ?"
            f" ORDER BY {begun} DESC LIMIT 1",
            (node_id, pid or 0, at_ns),
        )
        return rows[0][0] if rows else None


def _frame(function: str | None, file: str | None, line: int | None, module: str | None) -> str:
    place = f"{file}:{line}" if file and line else file or module
    return clean(f"{function or '?'} ({place})" if place else function or "?", 300)
