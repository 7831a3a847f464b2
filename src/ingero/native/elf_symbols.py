"""Symbols of an ELF file as arrays; their names stay in the file where those are many.

The names of a large library (torch's have a hundred megabytes) are looked at in pieces as they pass by and
never held as a whole. So what is asked about them must be asked while the file is open.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_NAME_BYTES = 4096
HELD_BYTES = 1 << 20  # of names; more than these stay in the file
PIECE_BYTES = 1 << 20
HEAD_BYTES = 8
Integers = NDArray[Any]


class TextPart(NamedTuple):
    """Part of a text that was put together from a file."""

    start: int
    bytes: int
    offset: int  # in the file


class Texts:
    """Names one after the other, each with a zero byte at its end: parts of a file, in a row."""

    def __init__(self, fd: int, places: Iterable[TextPart]) -> None:
        self._fd = fd
        self.places = tuple(places)
        self._size = max((place.start + place.bytes for place in self.places), default=0)
        self.held = b""
        if self._size <= HELD_BYTES:
            parts = [_read(fd, place.offset, place.bytes).ljust(place.bytes, b"\0") for place in self.places]
            self.held = b"\0".join(parts)

    def __len__(self) -> int:
        return self._size

    def close(self) -> None:
        """The file is closed: its number may be another one's."""
        self._fd = -1

    def at(self, start: int, fd: int = -1) -> bytes:
        """The name that begins there; `fd`: the file, if this one's is closed by now."""
        if self.held:
            return string_at(self.held, start)
        for place in self.places:
            before = start - place.start
            if 0 <= before < place.bytes:
                size = min(place.bytes - before, MAX_NAME_BYTES)
                return string_at(_read(self._fd if fd < 0 else fd, place.offset + before, size), 0)
        return b""

    def many(self, starts: Integers) -> list[bytes]:
        """The names that begin there."""
        if self.held:
            return [string_at(self.held, start) for start in starts.tolist()]
        found = [b""] * len(starts)
        for begin, data, rows in self._passing(starts, MAX_NAME_BYTES):
            for row in rows.tolist():
                found[row] = string_at(data, int(starts[row]) - begin)
        return found

    def heads(self, starts: Integers) -> NDArray[np.uint64]:
        """The first eight bytes at each start, as numbers; what follows the end counts as zeroes."""
        found = np.zeros(len(starts), np.uint64)
        for begin, data, rows in self._passing(starts, HEAD_BYTES):
            windows: Integers = np.ndarray((len(data) - HEAD_BYTES,), "<u8", data, strides=(1,))
            found[rows] = windows[starts[rows] - begin]
        return found

    def _passing(self, starts: Integers, more: int) -> Iterator[tuple[int, bytes, Integers]]:
        """Piece by piece: where each begins, its bytes and `more` of what follows, and which
        starts lie in it."""
        order = np.argsort(starts, kind="stable")
        ordered = starts[order]
        for place in self.places:
            for at in range(0, place.bytes, PIECE_BYTES):
                begin, size = place.start + at, min(PIECE_BYTES, place.bytes - at)
                first, last = np.searchsorted(ordered, [begin, begin + size])
                if first < last:
                    data = _read(self._fd, place.offset + at, min(size + more, place.bytes - at))
                    yield begin, data.ljust(size + more, b"\0"), order[first:last]


def _read(fd: int, offset: int, size: int) -> bytes:
    """What the file has there; nothing, if it became shorter or cannot be read."""
    try:
        return os.pread(fd, size, offset)
    except OSError:
        return b""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function: `offset` is where its first byte lies in the file, which is what uprobes take."""

    name: str
    value: int
    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class Symbols:
    """Defined symbols sorted by address: parallel arrays, names decoded only when asked for."""

    values: Integers
    sizes: Integers
    offsets: Integers
    names: Integers  # where each name starts in `texts`
    hidden: NDArray[np.bool_]  # not the default version of its name
    texts: Texts

    def __len__(self) -> int:
        return len(self.values)

    def raw_name(self, index: int) -> bytes:
        return self.texts.at(int(self.names[index])).partition(b"@")[0]

    def name(self, index: int) -> str:
        return self.raw_name(index).decode("utf-8", "replace")

    def symbol(self, index: int) -> Symbol:
        size, offset = int(self.sizes[index]), int(self.offsets[index])
        return Symbol(self.name(index), int(self.values[index]), size, offset)

    def covering(self, value: int) -> Symbol | None:
        """The symbol whose bytes include this virtual address of the file."""
        index = int(np.searchsorted(self.values, np.uint64(value), side="right")) - 1
        if index < 0 or value >= int(self.values[index]) + max(int(self.sizes[index]), 1):
            return None
        return self.symbol(index)


def find_in(symbols: Symbols, names: Iterable[str]) -> dict[str, Symbol]:
    """The named functions; of several versions of a name, the default one.

    Aliases (two names, one offset) are all listed: whoever attaches looks at `offset`.
    """
    wanted = {name.encode(): name for name in names if name}
    found: dict[str, Symbol] = {}
    default: set[str] = set()
    rows = _candidates(symbols, wanted)
    for index, raw in zip(rows.tolist(), symbols.texts.many(symbols.names[rows]), strict=True):
        base, at, version = raw.partition(b"@")
        name = wanted.get(base)
        if name is None or name in default:
            continue
        found[name] = symbols.symbol(index)
        if not symbols.hidden[index] and (not at or version.startswith(b"@")):
            default.add(name)
    return found


def _candidates(symbols: Symbols, wanted: Iterable[bytes]) -> Integers:
    """Rows whose first eight bytes fit a wanted name: NumPy drops the rest before Python looks."""
    if not len(symbols):
        return np.zeros(0, np.int64)
    keys: dict[int, set[int]] = {}
    for name in wanted:
        for ended in (name + b"\0", name + b"@"):
            length = min(len(ended), HEAD_BYTES)
            keys.setdefault(length, set()).add(int.from_bytes(ended[:length], "little"))
    heads = symbols.texts.heads(symbols.names)
    fits = np.zeros(len(heads), bool)
    for length, values in keys.items():
        mask = np.uint64((1 << 8 * length) - 1)
        fits |= np.isin(heads & mask, np.fromiter(values, np.uint64, len(values)))
    return np.flatnonzero(fits)


def merged(parts: list[Symbols], texts: Texts) -> Symbols:
    """One table, sorted by address. The parts have no texts of their own."""

    def joined(field: str, kind: type) -> Integers:
        # dtype given: concatenating nothing must still yield integers
        return np.concatenate([np.zeros(0, kind), *(getattr(part, field) for part in parts)])

    values = joined("values", np.uint64)
    order = np.argsort(values, kind="stable")
    values = values[order]
    sizes, offsets = joined("sizes", np.uint64)[order], joined("offsets", np.uint64)[order]
    return Symbols(
        values, sizes, offsets, joined("names", np.int64)[order], joined("hidden", bool)[order], texts
    )


def string_at(strings: bytes, start: int) -> bytes:
    end = strings.find(b"\0", start, start + MAX_NAME_BYTES)
    return strings[start : end if end >= 0 else start + MAX_NAME_BYTES]


# What a file may have the agent read: no more than is really in it, and no more than any library has.
#
# The files belong to the traced processes. Tables that overlap or lie in holes cost their
# writer nothing and us gigabytes, so they are refused before anything is read.


MAX_SYMBOLS = (
    3_000_000  # the largest libraries of torch have some 600,000; each takes up to 150 bytes while read
)
MAX_SYMBOL_BYTES = 256 << 20  # with their names, which are most of it


def refusal(fd: int, file_bytes: int, ranges: Iterable[tuple[int, int]], symbols: int) -> str:
    """Why tables at these (offset, size) are not read; empty when they are."""
    places = sorted(set(ranges))
    total = sum(size for _, size in places)
    if symbols > MAX_SYMBOLS:
        return f"it claims {symbols:,} symbols, more than {MAX_SYMBOLS:,}"
    if total > MAX_SYMBOL_BYTES:
        return f"its symbols take {total >> 20} MiB, more than {MAX_SYMBOL_BYTES >> 20}"
    if any(offset + size > file_bytes for offset, size in places):
        return "a table lies outside the file"
    if any(before[0] + before[1] > after[0] for before, after in pairwise(places)):
        return "its tables overlap"
    if sum(_stored(fd, offset, size) for offset, size in places) * 2 < total:
        return "most of its tables is not in the file but in holes"
    return ""


def _stored(fd: int, offset: int, size: int) -> int:
    """How many bytes of a part of the file are not holes; where that cannot be told, all."""
    found, at, end = 0, offset, offset + size
    for _ in range(64):  # a table in more pieces than that is one somebody made so
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
            if begin >= end:
                return found
            at = min(end, os.lseek(fd, begin, os.SEEK_HOLE))
        except OSError:  # no more data, or a file system that knows no holes and says so
            return found if found or _knows_holes(fd) else size
        found += at - begin
        if at >= end:
            return found
    return found


def _knows_holes(fd: int) -> bool:
    try:
        os.lseek(fd, 0, os.SEEK_DATA)
    except OSError:
        return False
    return True
