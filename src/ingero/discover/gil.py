"""Where a Python process's interpreter lock lies, so that waits for it can be told from others.

The main interpreter's lock is part of the variable `_PyRuntime` (CPython 3.9 to 3.14):
a futex inside that variable is the lock, or one of the runtime's own that are held for
an instant. Subinterpreters with a lock of their own have it elsewhere: not seen.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ingero.discover.interpreters import RUNTIME, holder_of, named_version
from ingero.discover.libraries import FileKey, Library, Mapping, path_for_kernel, read_maps
from ingero.discover.processes import printable
from ingero.errors import FileFormatError
from ingero.native.elf import ElfFile, Segment, find_in

VERSIONS = tuple(f"3.{minor}" for minor in range(9, 15))
MAX_RUNTIME_BYTES = 16 << 20  # half a megabyte in 3.14: a larger one is no lock
MAX_REMEMBERED_FILES = 1024


@dataclass(frozen=True, slots=True)
class Gil:
    """Addresses in the process; an empty range with the reason where it is not known."""

    start: int = 0
    end: int = 0
    why: str = ""
    library: Library | None = field(default=None, compare=False)  # the interpreter's file


@dataclass(frozen=True, slots=True)
class Runtime:
    """What an interpreter's file says; size 0: it does not define the variable."""

    value: int = 0
    size: int = 0
    version: str = ""
    code: Segment | None = None


class GilFinder:
    """Finds the lock of processes; a file is read once per content."""

    def __init__(self) -> None:
        self._runtimes: dict[FileKey, Runtime] = {}

    def gil_of(self, pid: int) -> Gil | None:
        """None: no Python runs in this process. Raises ProcessLookupError when it is gone."""
        mappings = read_maps(pid)
        if not mappings:
            raise ProcessLookupError(pid)
        shared, holder = holder_of(pid, mappings)
        if holder is None:
            return None
        opened = path_for_kernel(pid, holder)
        runtime = self._runtime(*opened) if opened else Runtime()
        if not runtime.size and not shared:
            return None
        named, free_threaded = named_version(holder.path, mappings)
        version = runtime.version or named or ""
        why = _reason(runtime, version, bool(free_threaded))
        gil = Gil(why=why) if why else _place(runtime, holder, mappings)
        return replace(gil, library=_library(holder, opened, version)) if opened else gil

    def _runtime(self, path: str, status: os.stat_result) -> Runtime:
        key = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        if key not in self._runtimes:
            if len(self._runtimes) >= MAX_REMEMBERED_FILES:
                self._runtimes.clear()
            self._runtimes[key] = read_runtime(path)
        return self._runtimes[key]


def _library(holder: Mapping, opened: tuple[str, os.stat_result], version: str) -> Library:
    path, status = opened
    old = version.split(".")[:2] == ["3", "9"]
    shown = printable(os.fsencode(holder.path))
    return Library(path, shown, status.st_dev, status.st_ino, "python3.9" if old else "python")


def read_runtime(path: str) -> Runtime:
    with suppress(FileFormatError), ElfFile(path) as elf:
        found = find_in(elf.variables, (RUNTIME, "Py_Version"))
        code = next((each for each in elf.segments if each.executable), None)
        if RUNTIME in found:
            stated = found.get("Py_Version")
            number = int.from_bytes(elf.read(stated.offset, 4), "little") if stated else 0
            version = f"{number >> 24}.{number >> 16 & 0xFF}" if number else ""
            return Runtime(found[RUNTIME].value, found[RUNTIME].size, version, code)
    return Runtime()


def _reason(runtime: Runtime, version: str, free_threaded: bool) -> str:
    """Why the lock is not watched; empty when it can be."""
    if free_threaded:
        return "a free-threaded Python has no interpreter lock"
    if not 0 < runtime.size <= MAX_RUNTIME_BYTES or runtime.code is None:
        return f"the interpreter's file does not say where {RUNTIME} is"
    if ".".join(version.split(".")[:2]) not in VERSIONS:
        return f"Python {version or 'of unknown version'}: only {VERSIONS[0]} to {VERSIONS[-1]} are known"
    return ""


def _place(runtime: Runtime, holder: Mapping, mappings: list[Mapping]) -> Gil:
    """The variable's addresses: as far from its code in memory as in the file."""
    code = runtime.code
    assert code is not None
    for each in mappings:
        same = (each.path, each.inode, each.deleted) == (holder.path, holder.inode, holder.deleted)
        if same and each.executable and each.offset <= code.offset < each.offset + each.end - each.start:
            start = runtime.value + each.start + code.offset - each.offset - code.vaddr
            return Gil(start, start + runtime.size)
    return Gil(why="the interpreter's code is not where its file says")
