"""Where a Python process keeps its interpreter's state: the variable `_PyRuntime`.

Everything that is read of an interpreter starts there. The file says where the variable
lies, the process's mappings where the file does. What is in it is not looked at here.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field

from ingero.discover.interpreters import RUNTIME, holder_of, named_version
from ingero.discover.libraries import FileKey, Library, Mapping, path_for_kernel, read_maps
from ingero.discover.processes import printable
from ingero.errors import FileFormatError
from ingero.model.numbers import Word
from ingero.native.elf import ElfFile, Segment, find_in

MAX_RUNTIME_BYTES = 16 << 20  # half a megabyte in 3.14: a larger one is none
MAX_REMEMBERED_FILES = 1024


@dataclass(frozen=True, slots=True)
class RuntimeFile:
    """What an interpreter's file says; size 0: it does not define the variable."""

    value: int = 0
    size: int = 0
    version: str = ""  # with the patch level, where the file states it
    code: Segment | None = None


@dataclass(frozen=True, slots=True)
class Runtime:
    """Addresses in a process; none, with the reason, where they are not known."""

    start: Word = 0
    end: Word = 0
    why: str = ""
    version: str = ""
    free_threaded: bool = False  # as the file's name has it
    library: Library | None = field(default=None, compare=False)

    @property
    def minor(self) -> int | None:
        """The N of Python 3.N."""
        major, _, rest = self.version.partition(".")
        minor = rest.partition(".")[0]
        return int(minor) if major == "3" and re.fullmatch(r"[0-9]{1,4}", minor) else None


class RuntimeFinder:
    """Finds the variable in processes; a file is read once per content."""

    def __init__(self) -> None:
        self._files: dict[FileKey, RuntimeFile] = {}

    def runtime_of(self, pid: int) -> Runtime | None:
        """None: no Python runs in this process. Raises ProcessLookupError when it is gone."""
        mappings = read_maps(pid)
        if not mappings:
            raise ProcessLookupError(pid)
        shared, holder = holder_of(pid, mappings)
        if holder is None:
            return None
        opened = path_for_kernel(pid, holder)
        file = self._file(*opened) if opened else RuntimeFile()
        if not file.size and not shared:
            return None
        named, free_threaded = named_version(holder.path, mappings)
        version = file.version or named or ""
        library = _library(holder, opened, version) if opened else None
        start = _place(file, holder, mappings)
        end = start + file.size if start else 0
        return Runtime(start, end, _reason(file, start), version, bool(free_threaded), library)

    def _file(self, path: str, status: os.stat_result) -> RuntimeFile:
        key = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        if key not in self._files:
            if len(self._files) >= MAX_REMEMBERED_FILES:
                self._files.clear()
            self._files[key] = read_file(path)
        return self._files[key]


def read_file(path: str) -> RuntimeFile:
    with suppress(FileFormatError), ElfFile(path) as elf:
        found = find_in(elf.variables, (RUNTIME, "Py_Version"))
        code = next((each for each in elf.segments if each.executable), None)
        if RUNTIME in found:
            stated = found.get("Py_Version")
            number = int.from_bytes(elf.read(stated.offset, 4), "little") if stated else 0
            version = f"{number >> 24}.{number >> 16 & 0xFF}.{number >> 8 & 0xFF}" if number else ""
            return RuntimeFile(found[RUNTIME].value, found[RUNTIME].size, version, code)
    return RuntimeFile()


def _library(holder: Mapping, opened: tuple[str, os.stat_result], version: str) -> Library:
    path, status = opened
    old = version.split(".")[:2] == ["3", "9"]
    shown = printable(os.fsencode(holder.path))
    return Library(path, shown, status.st_dev, status.st_ino, "python3.9" if old else "python")


def _reason(file: RuntimeFile, start: int) -> str:
    if not 0 < file.size <= MAX_RUNTIME_BYTES or file.code is None:
        return f"the interpreter's file does not say where {RUNTIME} is"
    return "" if start else "the interpreter's code is not where its file says"


def _place(file: RuntimeFile, holder: Mapping, mappings: list[Mapping]) -> int:
    """The variable's address: as far from its code in memory as in the file; 0 when that is nowhere."""
    code = file.code
    if code is None or not 0 < file.size <= MAX_RUNTIME_BYTES:
        return 0
    for each in mappings:
        same = (each.path, each.inode, each.deleted) == (holder.path, holder.inode, holder.deleted)
        if same and each.executable and each.offset <= code.offset < each.offset + each.end - each.start:
            return file.value + each.start + code.offset - each.offset - code.vaddr
    return 0
