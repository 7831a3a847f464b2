"""Files that cost their writer nothing and would cost the reader gigabytes."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pytest

from ingero.discover.code_files import functions_of
from ingero.errors import FileFormatError
from ingero.native import elf_symbols
from ingero.native.elf import ElfFile

SYMTAB, STRTAB, DYNSYM = 2, 3, 11
HEADER_BYTES, SECTION_BYTES, SYMBOL_BYTES = 64, 64, 24
PAGE = 4096
LITTLE = 8 << 20


def written(path: Path, sections: list[tuple[int, int, int, int]], data_bytes: int) -> Path:
    """An ELF file with these sections (type, offset, size, link) and this many bytes that say nothing."""
    headers = [bytes(SECTION_BYTES)]
    for kind, offset, size, link in sections:
        entry = SYMBOL_BYTES if kind in (SYMTAB, DYNSYM) else 0
        headers.append(struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, offset, size, link, 0, 8, entry))
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 3, 62, 1, 0, 0, HEADER_BYTES, 0, HEADER_BYTES, 56, 0, SECTION_BYTES,
        len(headers), 0,
    )  # fmt: skip
    with path.open("wb") as file:
        file.write((header + b"".join(headers)).ljust(PAGE, b"\0"))
        file.write(b"\x12" * data_bytes)
    return path


def peak_of_refusal(path: Path, why: str) -> int:
    """Bytes it took to refuse the file, in every way a file is read."""
    tracemalloc.start()
    for read in (lambda elf: elf.functions, lambda elf: elf.variables, functions_of):
        with ElfFile(path) as elf, pytest.raises(FileFormatError, match=why):
            read(elf)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_tables_that_overlap_are_refused_before_they_are_read(tmp_path: Path) -> None:
    size = 64 << 20
    tables = [(SYMTAB, PAGE + shift, size, 5) for shift in (0, 24, 48, 72)]
    path = written(tmp_path / "overlapping", [*tables, (STRTAB, PAGE, size, 0)], 0)
    os.truncate(path, PAGE + size + 100)
    assert peak_of_refusal(path, "symbols, more than|overlap|take") < LITTLE
    small = 24 * 1000
    tables = [(SYMTAB, PAGE + shift, small, 5) for shift in (0, 24, 48, 72)]
    path = written(tmp_path / "small", [*tables, (STRTAB, PAGE, small, 0)], 2 * small)
    assert peak_of_refusal(path, "overlap") < LITTLE


def test_tables_in_holes_are_refused_before_they_are_read(tmp_path: Path) -> None:
    size = 48 << 20
    path = written(tmp_path / "sparse", [(SYMTAB, PAGE, size, 2), (STRTAB, PAGE + size, size, 0)], 8192)
    os.truncate(path, PAGE + 2 * size)
    if path.stat().st_blocks * 512 > size:
        pytest.skip("this file system has no holes")
    assert peak_of_refusal(path, "holes") < LITTLE


def test_more_symbols_than_any_library_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elf_symbols, "MAX_SYMBOLS", 100)
    size = 101 * SYMBOL_BYTES
    path = written(tmp_path / "many", [(DYNSYM, PAGE, size, 2), (STRTAB, PAGE + size, 100, 0)], size + 100)
    assert peak_of_refusal(path, "101 symbols, more than 100") < LITTLE


def test_a_table_outside_the_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "short", [(SYMTAB, PAGE, 24 * 100, 2), (STRTAB, PAGE, 0, 0)], 100)
    assert peak_of_refusal(path, "outside the file") < LITTLE


def test_a_file_whose_tables_are_there_is_read(tmp_path: Path) -> None:
    size = 240 * 100
    tables = [(DYNSYM, PAGE, size, 3), (SYMTAB, PAGE + size, size, 3), (STRTAB, PAGE + 2 * size, 500, 0)]
    path = written(tmp_path / "fine", tables, 2 * size + 500)
    with ElfFile(path) as elf:
        assert len(elf.functions) == 0
        assert len(functions_of(elf)) == 0
