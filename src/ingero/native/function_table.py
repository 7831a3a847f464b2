"""The functions of one ELF file by address: which one holds a place in it.

A function is named only for addresses within its size; one without a size (assembler)
reaches to the next symbol or the end of its section. Of several names for one place the
one that people know is taken: with a size, few underscores in front, the default version.
The names of large libraries (torch's have a hundred megabytes) stay in the file, and are read
one by one when asked for. The file is not kept open: whoever asks has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ingero.native.elf import ElfFile, Integers, Symbols

_MAX_FUNCTION_BYTES = (1 << 32) - 1
_STEPS_BACK = 32  # symbols that begin within a longer one, between it and an address
_ROW_BYTES, _TABLE_BYTES = 20, 4096


class FunctionTable:
    """Arrays sorted by address; names stay bytes until asked for."""

    def __init__(
        self, symbols: Symbols, section_ends: Integers, segments: list[tuple[int, int, int]]
    ) -> None:
        self._segments = segments  # executable: offset in the file, end there, address minus offset
        order = _order(symbols)
        ends = _ends(symbols, section_ends)[order]
        self._values = symbols.values[order]
        # As distances, which take half the room of addresses.
        self._sizes = _short(ends - self._values)
        self._reach = _short(np.maximum.accumulate(ends) - self._values) if len(order) else self._sizes
        self._starts = symbols.names[order].astype(np.uint32)
        self._texts = symbols.texts
        self.holds_names = bool(symbols.texts.held)
        self.bytes = len(symbols.texts.held) + len(order) * _ROW_BYTES + _TABLE_BYTES

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
        behind = addresses - self._values[rows]
        found = np.where((rows >= 0) & (behind < self._sizes[rows]), rows, -1)
        for at in np.flatnonzero((found < 0) & (rows >= 0) & (behind < self._reach[rows])).tolist():
            found[at] = self._enclosing(int(rows[at]), int(addresses[at]))
        return found

    def _enclosing(self, row: int, address: int) -> int:
        for each in range(row - 1, max(row - _STEPS_BACK, 0) - 1, -1):
            if address < int(self._values[each]) + int(self._sizes[each]):
                return each
        return -1

    def raw_names(self, rows: Sequence[int], fd: int = -1) -> list[bytes]:
        """As the file has them, or empty; `fd`: the file, needed where they are not held."""
        return [self._texts.at(int(self._starts[row]), fd).partition(b"@")[0] for row in rows]

    def same_as(self, other: FunctionTable) -> bool:
        """Whether the two name every address alike; a build id would not prove it, any file can claim one.

        Names that are not held are read from the very file that is asked about: they need not be the same.
        """
        return (
            self._segments == other._segments
            and self._texts.places == other._texts.places
            and self._texts.held == other._texts.held
            and np.array_equal(self._values, other._values)
            and np.array_equal(self._starts, other._starts)
            and np.array_equal(self._sizes, other._sizes)
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


def _short(distances: Integers) -> NDArray[np.uint32]:
    return np.minimum(distances, _MAX_FUNCTION_BYTES).astype(np.uint32)


def _order(symbols: Symbols) -> NDArray[np.int64]:
    """By address, and the better name last: that is the one a search meets."""
    heads = symbols.texts.heads(symbols.names)
    first = heads & np.uint64(0xFF) == ord("_")
    second = heads >> np.uint64(8) & np.uint64(0xFF) == ord("_")
    underscores = first.astype(np.int8) + (first & second)
    return np.lexsort((~symbols.hidden, -underscores, symbols.sizes > 0, symbols.values))
