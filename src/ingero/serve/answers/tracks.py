"""What a timeline is made of: tracks, made when something is first drawn on them, and slices, moments and
samples on them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ingero.store.reader import Reader
from ingero.units import clean

# What a timeline is made of: tracks, and on them slices, moments and samples.
#
# The dashboard and the exported traces draw the same ones. On each track starts never
# go back, and of two slices of one track that overlap one lies within the other.
# Instants are Unix-epoch nanoseconds.

Value = int | float | str
Arguments = tuple[tuple[str, Value], ...]
EVENT = "event"  # argument: the number of the event on its node, as in its id


class Track(NamedTuple):
    """A row of the timeline. `pid` and `tid` are unique in it, also where nodes share a number."""

    id: int
    kind: str  # process, thread, lane, counter
    name: str
    parent: int  # 0: none
    pid: int
    tid: int
    order: int  # among its siblings
    unit: str = ""  # of a counter


class Slice(NamedTuple):
    """Something that lasted. Flows: arrows that end or begin here; each number has one end and one begin."""

    track: int
    start_ns: int
    end_ns: int
    name: str
    category: str
    arguments: Arguments = ()
    flows_in: tuple[int, ...] = ()
    flows_out: tuple[int, ...] = ()


class Moment(NamedTuple):
    """Something without a length."""

    track: int
    at_ns: int
    name: str
    category: str
    arguments: Arguments = ()
    flows_in: tuple[int, ...] = ()
    flows_out: tuple[int, ...] = ()


class Sample(NamedTuple):
    """A counter's value from this instant on."""

    track: int
    at_ns: int
    value: float


Item = Track | Slice | Moment | Sample


def nested(slices: Iterable[Slice]) -> Iterator[Slice]:
    """Of one track, sorted by start and the longer first: what sticks out of its outer slice is cut off."""
    ends: list[int] = []
    for each in slices:
        while ends and ends[-1] <= each.start_ns:
            ends.pop()
        if ends and each.end_ns > ends[-1]:
            each = each._replace(end_ns=ends[-1])
        ends.append(each.end_ns)
        yield each


class Lanes:
    """Puts slices that may overlap on as few tracks as it takes."""

    def __init__(self) -> None:
        self._busy: list[tuple[int, int]] = []  # end, lane
        self._free: list[int] = []
        self._count = 0

    def take(self, start_ns: int, end_ns: int) -> int:
        """The lane of the next slice, by start; from 0 on."""
        while self._busy and self._busy[0][0] <= start_ns:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        if self._free:
            lane = heapq.heappop(self._free)
        else:
            lane, self._count = self._count, self._count + 1
        heapq.heappush(self._busy, (end_ns, lane))
        return lane


# Which tracks a timeline has: made when something is first drawn on them.
#
# Viewers know a process by its number. Two nodes, or two processes one after the
# other, may have the same one: the first keeps it, others get a free number, and every
# name says whose it is.


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
