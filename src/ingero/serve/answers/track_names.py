"""Which tracks a timeline has: made when something is first drawn on them.

Viewers know a process by its number. Two nodes, or two processes one after the
other, may have the same one: the first keeps it, others get a free number, and every
name says whose it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ingero.serve.answers.tracks import Track
from ingero.store.reader import Reader
from ingero.units import clean

FIRST_FREE = 1 << 22  # above every PID Linux gives
MACHINE, COLLECTIVES = "machine", "collectives"
NODE_ORDER = 1_000_000


@dataclass(slots=True)
class Tracks:
    """Hands out tracks; `new` has those nobody has drawn yet."""

    reader: Reader
    new: list[Track] = field(default_factory=list)
    _known: dict[tuple[object, ...], Track] = field(default_factory=dict)
    _numbers: set[int] = field(default_factory=set)
    _next_free: int = FIRST_FREE
    _pids: dict[int, int] = field(default_factory=dict)  # of process tracks: what the kernel calls them
    _nodes: dict[int, tuple[str, int]] = field(default_factory=dict)  # name, place

    def taken(self) -> Iterator[Track]:
        """What must be drawn before the next item."""
        yield from self.new
        self.new.clear()

    def node(self, node_id: int) -> tuple[str, int]:
        if not self._nodes:
            rows = self.reader.rows("SELECT id, name FROM node ORDER BY name")
            self._nodes = {number: (clean(name, 128), at) for at, (number, name) in enumerate(rows)}
        return self._nodes.get(node_id, ("?", len(self._nodes)))

    def machine(self, node_id: int) -> Track:
        """What belongs to the node and to none of its processes."""
        key = (MACHINE, node_id)
        if key not in self._known:
            name, at = self.node(node_id)
            self._add(key, "process", f"{name} machine", 0, self._free(), 0, at * NODE_ORDER)
        return self._known[key]

    def collectives(self) -> Track:
        key = (COLLECTIVES,)
        if key not in self._known:
            self._add(key, "process", "collectives, by communicator and rank", 0, self._free(), 0, -1)
        return self._known[key]

    def process(
        self, node_id: int, process_id: int | None, pid: int | None, comm: str | None = None
    ) -> Track:
        """Of a process by its row, or by its PID where it has none."""
        key = ("process", node_id, process_id or 0, 0 if process_id else pid or 0)
        if key not in self._known:
            self._add_process(key, node_id, process_id, pid or 0, comm)
        return self._known[key]

    def _add_process(
        self, key: tuple[object, ...], node_id: int, process_id: int | None, pid: int, comm: str | None
    ) -> None:
        row = self.reader.rows("SELECT comm, rank FROM process WHERE id = ?", (process_id or 0,))
        name, rank = row[0] if row else (comm, None)
        node, at = self.node(node_id)
        number = pid if pid > 0 and pid not in self._numbers else self._free()
        words = [node, *([] if rank is None else [f"rank {rank}"]), clean(name or comm or "?", 64)]
        if number != pid:
            words.append(f"pid {pid}")
        order = at * NODE_ORDER + 1 + (rank if isinstance(rank, int) and 0 <= rank < 4096 else 4096)
        self._add(key, "process", " ".join(words), 0, number, number, order)
        self._pids[self._known[key].id] = pid

    def thread(self, process: Track, tid: int | None, comm: str | None = None) -> Track:
        key = ("thread", process.id, tid or 0)
        if key not in self._known:
            main = tid == self._pids.get(process.id)
            number = process.pid if main else self._number(tid or 0)
            name = f"{clean(comm or 'thread', 64)} {tid or '?'}"
            self._add(key, "thread", name, process.id, process.pid, number, 0 if main else 1)
        return self._known[key]

    def lane(self, parent: Track, name: str, order: int = 0) -> Track:
        key = ("lane", parent.id, name)
        if key not in self._known:
            self._add(key, "lane", name, parent.id, parent.pid, self._free(), order)
        return self._known[key]

    def counter(self, parent: Track, name: str, unit: str) -> Track:
        key = ("counter", parent.id, name)
        if key not in self._known:
            self._add(key, "counter", name, parent.id, parent.pid, 0, 0, unit)
        return self._known[key]

    def _number(self, wanted: int) -> int:
        return wanted if wanted > 0 and wanted not in self._numbers else self._free()

    def _free(self) -> int:
        self._next_free += 1
        return self._next_free

    def _add(
        self, key: tuple[object, ...], kind: str, name: str, parent: int, pid: int, tid: int, order: int,
        unit: str = "",
    ) -> None:  # fmt: skip
        track = Track(len(self._known) + 1, kind, name, parent, pid, tid, order, unit)
        self._numbers |= {pid, tid}
        self._known[key] = track
        self.new.append(track)
