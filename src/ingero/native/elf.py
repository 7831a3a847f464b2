"""ELF64 little-endian files: function symbols with their file offsets, segments, soname.

Tables are read with pread rather than mapped: a mapped file that its owner truncates
kills the reader with SIGBUS, and the files read here belong to the traced processes.
Every size and offset is taken for hostile until it fits the file; what cannot be
understood is a FileFormatError. Not a debugger: no DWARF, no 32-bit, no relocation.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from ingero.errors import FileFormatError
from ingero.native.elf_symbols import MAX_NAME_BYTES as MAX_NAME_BYTES
from ingero.native.elf_symbols import Integers as Integers
from ingero.native.elf_symbols import Symbol as Symbol
from ingero.native.elf_symbols import Symbols as Symbols
from ingero.native.elf_symbols import TextPart, Texts, merged, refusal, string_at
from ingero.native.elf_symbols import find_in as find_in

EM_X86_64 = 62
EM_AARCH64 = 183

# A claimed size is believed up to here: room for millions of symbols, far from what hurts the agent.
MAX_TABLE_BYTES = 256 << 20
MAX_HEADER_TABLE_BYTES = 4 << 20
MAX_SYMBOLS_AT_ONCE = 1 << 16  # while a table is read
MAX_SYMBOL_TABLES = 4
MAX_NEEDED = 256

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PT_LOAD, _PT_DYNAMIC, _PF_X = 1, 2, 1
_SHT_SYMTAB, _SHT_NOBITS, _SHT_DYNSYM, _SHT_VERSYM = 2, 8, 11, 0x6FFFFFFF
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 10, 14, 15, 29
_STT_OBJECT, _STT_FUNC = 1, 2
_VERSION_HIDDEN = 0x8000

_SEGMENT = np.dtype(
    {
        "names": ["type", "flags", "offset", "vaddr", "paddr", "filesz", "memsz", "align"],
        "formats": ["<u4", "<u4", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8"],
    }
)
_SECTION = np.dtype(
    {
        "names": ["name", "type", "flags", "addr", "offset", "size", "link", "info", "align", "entsize"],
        "formats": ["<u4", "<u4", "<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u8", "<u8"],
    }
)
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("shndx", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_DYNAMIC = np.dtype([("tag", "<i8"), ("value", "<u8")])

Source = str | os.PathLike[str] | int


@dataclass(frozen=True, slots=True)
class Segment:
    """A PT_LOAD program header."""

    offset: int
    vaddr: int
    file_bytes: int
    memory_bytes: int
    executable: bool


@dataclass(frozen=True, slots=True)
class ElfSection:
    """A section header with its name."""

    name: str
    type: int
    address: int
    offset: int
    size: int
    link: int
    entry_bytes: int


class ElfFile:
    """An open ELF file; a descriptor passed in stays the caller's."""

    def __init__(self, source: Source) -> None:
        self._owned = not isinstance(source, int)
        self.label = f"file descriptor {source}" if isinstance(source, int) else os.fspath(source)
        self.fd = source if isinstance(source, int) else _open_regular(source)
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if "_texts" in self.__dict__:
            self._texts.close()
        if self._owned and self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def __enter__(self) -> ElfFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wrong(self, why: str) -> FileFormatError:
        return FileFormatError(
            f"cannot read {self.label!r} as ELF: {why}",
            hint="The file may be damaged or not a 64-bit Linux library; its functions are not traced.",
        )

    def read(self, offset: int, size: int, limit_bytes: int = MAX_TABLE_BYTES) -> bytes:
        """Exactly `size` bytes at `offset`, or FileFormatError."""
        if size > limit_bytes:
            raise self._wrong(f"a table of {size} bytes is past the limit of {limit_bytes}")
        if size == 0:
            return b""
        if size < 0 or offset + size > self.file_bytes:
            raise self._wrong(f"{size} bytes at {offset} lie outside the file")
        try:
            data = os.pread(self.fd, size, offset)
        except OSError as error:
            raise self._wrong(os.strerror(error.errno or 0)) from error
        if len(data) != size:
            raise self._wrong("the file became shorter while being read")
        return data

    def _read_header(self) -> None:
        try:
            status = os.fstat(self.fd)
        except OSError as error:
            raise self._wrong(os.strerror(error.errno or 0)) from error
        if not stat.S_ISREG(status.st_mode):
            raise self._wrong("not a regular file")
        self.file_bytes = status.st_size
        if self.file_bytes < _HEADER.size:
            raise self._wrong("too short")
        fields = _HEADER.unpack(self.read(0, _HEADER.size))
        ident, self.type, self.machine = fields[:3]
        if ident[:4] != b"\x7fELF":
            raise self._wrong("no ELF magic")
        if ident[4:6] != b"\x02\x01":
            raise self._wrong("not 64-bit little-endian")
        self._phoff, self._shoff = fields[5:7]
        self._phentsize, self._phnum, self._shentsize, self._shnum, self._shstrndx = fields[9:14]

    def _table(self, offset: int, count: int, entry_bytes: int, dtype: np.dtype[np.void]) -> NDArray[np.void]:
        if count == 0 or offset == 0:
            return np.zeros(0, dtype)
        if entry_bytes != dtype.itemsize:
            raise self._wrong(f"entries of {entry_bytes} bytes instead of {dtype.itemsize}")
        data = self.read(offset, count * entry_bytes, MAX_HEADER_TABLE_BYTES)
        return np.frombuffer(data, dtype)

    @cached_property
    def _section_headers(self) -> NDArray[np.void]:
        count = self._shnum
        if count == 0 and self._shoff:  # more than 0xff00 sections: the first header holds the count
            count = int(self._table(self._shoff, 1, self._shentsize, _SECTION)["size"][0])
        return self._table(self._shoff, count, self._shentsize, _SECTION)

    @cached_property
    def _program_headers(self) -> NDArray[np.void]:
        count = self._phnum
        if count == 0xFFFF and len(self._section_headers):
            count = int(self._section_headers["info"][0])
        return self._table(self._phoff, count, self._phentsize, _SEGMENT)

    @cached_property
    def segments(self) -> list[Segment]:
        """PT_LOAD segments in file order."""
        loads = self._program_headers[self._program_headers["type"] == _PT_LOAD]
        fields = loads[["offset", "vaddr", "filesz", "memsz", "flags"]].tolist()
        return [Segment(o, v, f, m, bool(flags & _PF_X)) for o, v, f, m, flags in fields]

    @cached_property
    def sections(self) -> list[ElfSection]:
        headers = self._section_headers
        index = self._shstrndx
        if index == 0xFFFF and len(headers):
            index = int(headers["link"][0])
        names = self._section_bytes(index) if 0 < index < len(headers) else b""
        rows = headers[["name", "type", "addr", "offset", "size", "link", "entsize"]].tolist()
        return [ElfSection(string_at(names, row[0]).decode("utf-8", "replace"), *row[1:]) for row in rows]

    def _section_bytes(self, index: int) -> bytes:
        if index >= len(self._section_headers):
            raise self._wrong(f"no section {index}")
        header = self._section_headers[index]
        if header["type"] == _SHT_NOBITS:
            return b""
        return self.read(int(header["offset"]), int(header["size"]))

    def offset_of(self, value: int) -> int | None:
        """Where a virtual address of the file lies in it; None when no segment holds it."""
        for segment in self.segments:
            if segment.vaddr <= value < segment.vaddr + segment.file_bytes:
                return value - segment.vaddr + segment.offset
        return None

    @cached_property
    def soname(self) -> str | None:
        names = self._dynamic_strings(_DT_SONAME)
        return names[0].decode("utf-8", "replace") if names else None

    @cached_property
    def run_paths(self) -> list[str]:
        """Folders the loader looks for libraries in because the file says so, as written there."""
        texts = self._dynamic_strings(_DT_RPATH) + self._dynamic_strings(_DT_RUNPATH)
        return [os.fsdecode(part) for text in texts for part in text.split(b":") if part]

    @cached_property
    def needed(self) -> list[str]:
        """Libraries the loader maps along with the file, as named there."""
        return [os.fsdecode(name) for name in self._dynamic_strings(_DT_NEEDED, MAX_NEEDED) if name]

    def _dynamic_strings(self, tag: int, most: int = 1) -> list[bytes]:
        """Of each segment the last of its kind, or so many."""
        found = []
        for offset, size in self._program_headers[self._program_headers["type"] == _PT_DYNAMIC][
            ["offset", "filesz"]
        ].tolist():
            entries = self._table(offset, size // _DYNAMIC.itemsize, _DYNAMIC.itemsize, _DYNAMIC)
            tags = dict(zip(entries["tag"].tolist(), entries["value"].tolist(), strict=True))
            start = self.offset_of(tags.get(_DT_STRTAB, 0))
            limit = tags.get(_DT_STRSZ, 0)
            for at in entries["value"][entries["tag"] == tag].tolist()[-most:]:
                if start is not None and at < limit:
                    text = self.read(
                        start + at, min(limit - at, MAX_NAME_BYTES, self.file_bytes - start - at)
                    )
                    found.append(string_at(text, 0))
        return found

    @cached_property
    def _symbol_tables(self) -> list[int]:
        """Numbers of the sections, once it is known that they can be read without harm."""
        headers = self._section_headers
        kinds = (_SHT_DYNSYM, _SHT_SYMTAB)
        tables: list[int] = np.flatnonzero(np.isin(headers["type"], kinds))[:MAX_SYMBOL_TABLES].tolist()
        links = [int(link) for link in headers["link"][tables] if link < len(headers)]
        places = headers[[*tables, *links]][["offset", "size"]].tolist()
        symbols = sum(headers["size"][tables].tolist()) // _SYMBOL.itemsize
        if why := refusal(self.fd, self.file_bytes, places, symbols):
            raise self._wrong(why)
        return tables

    @property
    def symbol_bytes(self) -> int:
        """What reading every symbol and its name takes, before any of it is read."""
        headers = self._section_headers
        tables = headers[self._symbol_tables]
        links = tables["link"][tables["link"] < len(headers)]
        return int(sum(tables["size"].tolist()) + sum(headers["size"][links].tolist()))

    def section_ends(self, values: Integers) -> Integers:
        """Where the section ends that holds each virtual address; the address itself where none does."""
        headers = self._section_headers
        held = headers[(headers["addr"] != 0) & (headers["addr"] < 1 << 62) & (headers["size"] < 1 << 62)]
        held = held[np.argsort(held["addr"], kind="stable")]
        if not len(held):
            return values
        at = np.searchsorted(held["addr"], values, side="right") - 1
        ends = (held["addr"] + held["size"])[np.maximum(at, 0)]
        return np.where((at >= 0) & (ends > values), ends, values)

    @cached_property
    def functions(self) -> Symbols:
        """Defined functions of .dynsym and .symtab that lie in an executable segment."""
        return self._symbols(_STT_FUNC)

    @cached_property
    def objects(self) -> Symbols:
        """Defined variables of .dynsym and .symtab that have bytes in the file."""
        return self._symbols(_STT_OBJECT)

    @cached_property
    def variables(self) -> Symbols:
        """The same and those that begin as zeroes and have no bytes in the file (their offset is 0)."""
        return self._symbols(_STT_OBJECT, in_file=False)

    def _symbols(self, kind: int, in_file: bool = True) -> Symbols:
        texts = self._texts
        parts = [
            part
            for index, place in zip(self._symbol_tables, texts.places, strict=True)
            for part in self._symbols_of(index, place, kind, in_file)
        ]
        return merged(parts, texts)

    @cached_property
    def _texts(self) -> Texts:
        """The names of all symbol tables, one after the other."""
        headers, places, start = self._section_headers, [], 0
        for index in self._symbol_tables:
            link = int(headers[index]["link"])
            if link >= len(headers):
                raise self._wrong(f"no section {link}")
            size = 0 if headers[link]["type"] == _SHT_NOBITS else int(headers[link]["size"])
            places.append(TextPart(start, size, int(headers[link]["offset"])))
            start += size + 1
        return Texts(self.fd, places)

    def _symbols_of(self, index: int, place: TextPart, kind: int, in_file: bool) -> Iterator[Symbols]:
        """In parts: a large library has more symbols than should be looked at in one go."""
        header = self._section_headers[index]
        if header["entsize"] != _SYMBOL.itemsize:
            raise self._wrong("a symbol table with entries of the wrong size")
        count, table = int(header["size"]) // _SYMBOL.itemsize, int(header["offset"])
        hidden = self._hidden_versions(index, count)
        for first in range(0, count, MAX_SYMBOLS_AT_ONCE):
            some = min(MAX_SYMBOLS_AT_ONCE, count - first)
            data = self.read(table + first * _SYMBOL.itemsize, some * _SYMBOL.itemsize)
            symbols = np.frombuffer(data, _SYMBOL)
            keep = (symbols["info"] & 15 == kind) & (symbols["shndx"] != 0) & (symbols["name"] != 0)
            keep &= symbols["name"] < place.bytes
            offsets, inside = self._file_offsets(symbols["value"], executable=kind == _STT_FUNC)
            keep &= inside | (not in_file)
            kept, names = symbols[keep], symbols["name"][keep].astype(np.int64) + place.start
            versions = hidden[first : first + some][keep]
            # copies: a column alone would keep the whole of it
            yield Symbols(
                kept["value"].copy(), kept["size"].copy(), offsets[keep], names, versions, self._texts
            )

    def _hidden_versions(self, table: int, count: int) -> NDArray[np.bool_]:
        headers = self._section_headers
        for index in np.flatnonzero((headers["type"] == _SHT_VERSYM) & (headers["link"] == table))[:1]:
            if int(headers[index]["size"]) >= 2 * count:
                versions = np.frombuffer(self.read(int(headers[index]["offset"]), 2 * count), "<u2")
                return np.asarray((versions & _VERSION_HIDDEN) != 0, bool)
        return np.zeros(count, bool)

    def _file_offsets(self, values: Integers, executable: bool) -> tuple[Integers, NDArray[np.bool_]]:
        offsets, inside = np.zeros(len(values), np.uint64), np.zeros(len(values), bool)
        for segment in self.segments[:64]:
            end = segment.vaddr + min(segment.file_bytes, self.file_bytes)
            fits = segment.offset + segment.file_bytes <= self.file_bytes and end < 1 << 63
            if executable > segment.executable or not fits:
                continue
            within = (values >= np.uint64(segment.vaddr)) & (values < np.uint64(end))
            offsets[within] = values[within] - np.uint64(segment.vaddr) + np.uint64(segment.offset)
            inside |= within
        return offsets, inside


def find_symbols(source: Source, names: Iterable[str]) -> dict[str, Symbol]:
    """The named functions the file defines; of several versions of a name, the default one.

    Aliases (two names, one offset) are all listed: whoever attaches looks at `offset`.
    """
    with ElfFile(source) as elf:
        return find_in(elf.functions, names)


def _open_regular(path: str | os.PathLike[str]) -> int:
    """Opens without blocking on a FIFO and without waking a device: looks before it opens."""
    where = os.fspath(path)
    try:
        handle = os.open(where, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise FileFormatError(f"cannot read {where!r} as ELF: not a regular file")
            return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise FileFormatError(f"cannot open {where!r}: {why}") from error
