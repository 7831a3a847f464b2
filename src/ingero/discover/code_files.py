"""The function tables of the files that traced processes run, each read once.

A file is known by device, inode, time and size of what was really opened. Tables are
shared between files of equal content, as in many containers of one image; not by build
id, which any file can claim. The least recently used go when they take too much memory.
Names are read from the very file that is asked about, and shared with no other.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ingero.errors import FileFormatError
from ingero.native.elf import ElfFile, Integers, Symbols

FileKey = tuple[int, int, int, int]
MAX_TABLE_BYTES = 64 << 20  # two million functions: all libraries of torch have fewer
MAX_TABLES = 1024
MAX_FILES = 8192
Value = TypeVar("Value")


def file_key(status: os.stat_result) -> FileKey:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


class CodeFiles:
    """Tables by file."""

    def __init__(self, max_bytes: int = MAX_TABLE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._numbers: OrderedDict[FileKey, int] = OrderedDict()  # which table a file has
        self._tables: OrderedDict[int, FunctionTable] = OrderedDict()
        self._next = 1
        self._names: OrderedDict[FileKey, dict[int, str]] = OrderedDict()  # by row, as shown
        self._refused: OrderedDict[FileKey, str] = OrderedDict()

    def table(self, key: FileKey, paths: Iterable[str]) -> FunctionTable | str:
        """The table of this very file, found at one of the paths, or why there is none."""
        table = self._tables.get(self._numbers.get(key, 0))
        if table is None:
            return self._refused.get(key) or self._read(key, paths)
        self._tables.move_to_end(self._numbers[key])
        return table

    def names(self, key: FileKey) -> dict[int, str]:
        """Names of the file's functions by row, as they are shown; filled by whoever asks."""
        if key not in self._names:
            _remember(self._names, key, {})
        return self._names[key]

    def raw_names(
        self, key: FileKey, paths: Iterable[str], table: FunctionTable, rows: Sequence[int]
    ) -> list[bytes]:
        """Of rows of a file's table; empty where the file is gone or has become another."""
        if table.holds_names:
            return table.raw_names(rows)
        for path in paths:
            try:
                with ElfFile(path) as elf:
                    if file_key(os.fstat(elf.fd)) == key:
                        return table.raw_names(rows, elf.fd)
            except FileFormatError:
                continue
        return [b""] * len(rows)

    def held_bytes(self) -> int:
        return sum(table.bytes for table in self._tables.values())

    def _read(self, key: FileKey, paths: Iterable[str]) -> FunctionTable | str:
        why = "the file cannot be found"
        for path in paths:
            try:
                with ElfFile(path) as elf:
                    if file_key(os.fstat(elf.fd)) == key:
                        return self._keep(key, elf)
                    why = f"another file is at {path} by now"
            except FileFormatError as error:
                why = error.message
        return why

    def _keep(self, key: FileKey, elf: ElfFile) -> FunctionTable | str:
        try:
            table = functions_of(elf)
        except FileFormatError as error:  # what is wrong inside stays wrong
            _remember(self._refused, key, error.message)
            return error.message
        number = self._number(table)
        table = self._tables.setdefault(number, table)
        self._tables.move_to_end(number)
        _remember(self._numbers, key, number)
        while len(self._tables) > 1 and (
            self.held_bytes() > self._max_bytes or len(self._tables) > MAX_TABLES
        ):
            self._tables.popitem(last=False)
        return table

    def _number(self, table: FunctionTable) -> int:
        """That of an equal table, or a new one."""
        for number, held in self._tables.items():
            if held.same_as(table):
                return number
        self._next += 1
        return self._next


def _remember(known: OrderedDict[FileKey, Value], key: FileKey, value: Value) -> None:
    known[key] = value
    if len(known) > MAX_FILES:
        known.popitem(last=False)


# The functions of one ELF file by address: which one holds a place in it.
#
# A function is named only for addresses within its size; one without a size (assembler)
# reaches to the next symbol or the end of its section. Of several names for one place the
# one that people know is taken: with a size, few underscores in front, the default version.
# The names of large libraries (torch's have a hundred megabytes) stay in the file, and are read
# one by one when asked for. The file is not kept open: whoever asks has it.


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
