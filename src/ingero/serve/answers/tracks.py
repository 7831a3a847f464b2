"""What a timeline is made of: tracks, and on them slices, moments and samples.

The dashboard and the exported traces draw the same ones. On each track starts never
go back, and of two slices of one track that overlap one lies within the other.
Instants are Unix-epoch nanoseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

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
