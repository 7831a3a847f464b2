"""The functions of one ELF file by address: which one holds a place in it.

A function is named only for addresses within its size; one without a size (assembler)
reaches to the next symbol or the end of its section. Of several names for one place the
one that people know is taken: with a size, few underscores in front, the default version.
The names of large libraries (torch's have a hundred megabytes) stay in the file, and are read
one by one when asked for. The file is not kept open: whoever asks has it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ingero.native.elf import MAX_NAME_BYTES, ElfFile, Integers, Symbols, string_at

_MAX_FUNCTION_BYTES = 1 << 40
_STEPS_BACK = 32  # symbols that begin within a longer one, between it and an address
MOST_NAMES_HELD = 1 << 20  # bytes of names; more than these stay in the file
_ROW_BYTES, _TABLE_BYTES = 32, 4096


class FunctionTable:
    """Arrays sorted by address; names stay bytes until asked for."""

    def __init__(
        self, symbols: Symbols, section_ends: Integers, segments: list[tuple[int, int, int]]
    ) -> None:
        self._segments = segments  # executable: offset in the file, end there, address minus offset
        order = _order(symbols)
        self._values = symbols.values[order]
        self._ends = _ends(symbols, section_ends)[order]
        self._reach = np.maximum.accumulate(self._ends) if len(order) else self._ends
        self._starts = symbols.names[order]
        self._places = symbols.places
        self._digest = hashlib.blake2b(symbols.strings).digest()
        self.holds_names = len(symbols.strings) <= MOST_NAMES_HELD
        self._strings = symbols.strings if self.holds_names else b""
        self.bytes = len(self._strings) + len(order) * _ROW_BYTES + _TABLE_BYTES

    def __len__(self) -> int:
        return len(self._values)

    def addresses(self, offsets: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Virtual addresses of places in the file; the same number where no segment holds it."""
        found = offsets.copy()
        for start, end, shift in self._segments:
            within = (offsets >= np.uint64(start)) & (offsets < np.uint64(end))
            found[within] = offsets[within] + np.uint64(shift % (1 << 64))
        return found

    def find(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The row of the function that holds each address, -1 where none does."""
        if not len(self):
            return np.full(len(addresses), -1, np.int64)
        rows = np.searchsorted(self._values, addresses, side="right") - 1
        found = np.where((rows >= 0) & (addresses < self._ends[rows]), rows, -1)
        for at in np.flatnonzero((found < 0) & (rows >= 0) & (addresses < self._reach[rows])).tolist():
            found[at] = self._enclosing(int(rows[at]), int(addresses[at]))
        return found

    def _enclosing(self, row: int, address: int) -> int:
        for each in range(row - 1, max(row - _STEPS_BACK, 0) - 1, -1):
            if address < int(self._ends[each]):
                return each
        return -1

    def raw_names(self, rows: Sequence[int], fd: int = -1) -> list[bytes]:
        """As the file has them, or empty; `fd`: the file, needed where they are not held."""
        return [self._name_at(int(self._starts[row]), fd).partition(b"@")[0] for row in rows]

    def _name_at(self, start: int, fd: int) -> bytes:
        if self.holds_names:
            return string_at(self._strings, start)
        for place in self._places:
            before = start - place.start
            if 0 <= before < place.bytes:
                size = min(place.bytes - before, MAX_NAME_BYTES)
                try:
                    return os.pread(fd, size, place.offset + before).partition(b"\0")[0]
                except OSError:
                    break
        return b""

    def same_as(self, other: FunctionTable) -> bool:
        """Whether the two name every address alike; a build id would not prove it, any file can claim one."""
        return (
            self._segments == other._segments
            and self._digest == other._digest
            and np.array_equal(self._values, other._values)
            and np.array_equal(self._starts, other._starts)
            and np.array_equal(self._ends, other._ends)
        )


def functions_of(elf: ElfFile) -> FunctionTable:
    """The table of a file, or FileFormatError."""
    symbols = elf.functions
    segments = [
        (each.offset, each.offset + min(each.file_bytes, elf.file_bytes), each.vaddr - each.offset)
        for each in elf.segments[:64]
        if each.executable and each.offset < 1 << 62
    ]
    return FunctionTable(symbols, elf.section_ends(symbols.values), segments)


def _ends(symbols: Symbols, section_ends: Integers) -> Integers:
    """Where each function stops."""
    values = symbols.values
    following = np.searchsorted(values, values, side="right")
    following_values = np.append(values, np.uint64(1 << 63))[following]
    guessed = np.minimum(following_values, section_ends)
    stated = values + np.minimum(symbols.sizes, np.uint64(_MAX_FUNCTION_BYTES))
    return np.asarray(np.where(symbols.sizes > 0, stated, guessed), np.uint64)


def _order(symbols: Symbols) -> NDArray[np.int64]:
    """By address, and the better name last: that is the one a search meets."""
    text: NDArray[np.uint8] = np.frombuffer(symbols.strings, np.uint8)
    first = text[symbols.names] == ord("_")
    second = text[np.minimum(symbols.names + 1, len(text) - 1)] == ord("_")
    underscores = first.astype(np.int8) + (first & second)
    return np.lexsort((~symbols.hidden, -underscores, symbols.sizes > 0, symbols.values))
