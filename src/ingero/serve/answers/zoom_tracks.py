"""What a zoomed timeline is made of: tracks with columns, because a screen has thousands of slices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec


class View(NamedTuple):
    """What is looked at; `bin_ns` is one point of the screen."""

    from_ns: int
    to_ns: int
    bin_ns: int


class ZoomTrack(msgspec.Struct, kw_only=True):
    """One row. `kind` says which columns it has.

    `calls`, `waits`, `called`, `labels`, `moments`: start_ns, length_ns, name, count, longest_ns and, of
    a single event or the longest of several, event; `calls` also depth. `accounted`:
    start_ns and length_ns of each column, its `shares`, one list for each bucket, and its `takers`:
    who had the core meanwhile (name, PID, nanoseconds), most first.
    `counter`: start_ns and values.
    """

    kind: str
    node: str
    process: str  # what it is shown under; empty for the machine's own
    pid: int | None = None
    tid: int | None = None
    title: str = ""
    unit: str = ""
    feeder: bool = False
    buckets: list[str] = []
    start_ns: list[int] = []
    length_ns: list[int] = []
    name: list[int] = []
    count: list[int] = []
    longest_ns: list[int] = []
    event: list[int] = []  # number on its node
    depth: list[int] = []
    shares: list[list[float]] = []
    values: list[float | None] = []
    takers: list[list[tuple[str, int | None, int]]] = []


@dataclass(slots=True)
class Names:
    """Texts that come again and again, kept once."""

    texts: list[str] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)
    _known: dict[tuple[str, str], int] = field(default_factory=dict)

    def number(self, text: str, layer: str) -> int:
        found = self._known.get((text, layer))
        if found is None:
            found = self._known[text, layer] = len(self.texts)
            self.texts.append(text)
            self.layers.append(layer)
        return found
