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

from ingero.errors import FileFormatError
from ingero.native.elf import ElfFile
from ingero.native.function_table import FunctionTable, functions_of

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
