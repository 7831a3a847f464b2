"""Python interpreters among the processes: which version, where their state is, and where their lock lies."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ingero.discover.libraries import FileKey, Library, Mapping, path_for_kernel, read_maps
from ingero.discover.processes import printable
from ingero.errors import FileFormatError
from ingero.model.numbers import Word
from ingero.native.elf import ElfFile, Segment, find_in

# Python interpreters among the processes: which version, linked how.
#
# The version is read from the interpreter's own file (`Py_Version`, from 3.11), else from
# its name or from the folder its extension modules come from, because an executable may
# be called anything. Frames are not read here: this only says what is there.

RUNTIME = "_PyRuntime"  # the variable that holds every interpreter's state; has no bytes in a 3.7 file
EVALUATOR = "_PyEval_EvalFrameDefault"
_LIBPYTHON = re.compile(r"libpython(3\.\d+)(t?)[^/]*\.so")
_EXECUTABLE = re.compile(r"python(3\.\d+)(t?)$")
_MODULES = re.compile(r"/lib(?:64)?/python(3\.\d+)(t?)/")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A process that runs Python; free_threaded is None when nothing tells."""

    pid: int
    version: str | None
    linkage: Literal["static", "shared"]
    path: str
    free_threaded: bool | None = None


def find_interpreters(pids: Iterable[int]) -> list[Interpreter]:
    return [found for found in map(interpreter_of, pids) if found]


def interpreter_of(pid: int) -> Interpreter | None:
    """The interpreter in a process, or None when there is none, or no such process."""
    mappings = read_maps(pid)
    shared, holder = holder_of(pid, mappings)
    opened = path_for_kernel(pid, holder) if holder else None
    if holder is None or (opened is None and not shared):
        return None
    has_runtime, version = _look_inside(opened[0]) if opened else (True, None)
    if not has_runtime and not shared:
        return None
    named, free_threaded = named_version(holder.path, mappings)
    linkage: Literal["static", "shared"] = "shared" if shared else "static"
    return Interpreter(pid, version or named, linkage, printable(os.fsencode(holder.path)), free_threaded)


def holder_of(pid: int, mappings: list[Mapping]) -> tuple[bool, Mapping | None]:
    """Whether a process maps a libpython, and the file that holds its interpreter if it has one."""
    shared = next((each for each in mappings if _LIBPYTHON.match(_base(each.path))), None)
    return shared is not None, shared or _executable(pid, mappings)


def _executable(pid: int, mappings: list[Mapping]) -> Mapping | None:
    with suppress(OSError):
        path = str(Path(f"/proc/{pid}/exe").readlink()).removesuffix(" (deleted)")
        return next((each for each in mappings if each.path == path), None)
    return None


def _look_inside(path: str) -> tuple[bool, str | None]:
    """Whether the file defines the runtime, and the version it states."""
    with suppress(FileFormatError), ElfFile(path) as elf:
        found = find_in(elf.objects, (RUNTIME, "Py_Version"))
        stated = found.get("Py_Version")
        number = int.from_bytes(elf.read(stated.offset, 4), "little") if stated else 0
        plausible = number >> 24 == 3
        version = f"3.{number >> 16 & 0xFF}.{number >> 8 & 0xFF}" if plausible else None
        return RUNTIME in found or EVALUATOR in find_in(elf.functions, (EVALUATOR,)), version
    return False, None


def named_version(path: str, mappings: list[Mapping]) -> tuple[str | None, bool | None]:
    name = _base(path)
    match = _LIBPYTHON.match(name) or _EXECUTABLE.match(name)
    match = match or next(filter(None, (_MODULES.search(each.path) for each in mappings)), None)
    return (match[1], bool(match[2])) if match else (None, None)


def _base(path: str) -> str:
    return path.rpartition("/")[2]


# Where a Python process keeps its interpreter's state: the variable `_PyRuntime`.
#
# Everything that is read of an interpreter starts there. The file says where the variable
# lies, the process's mappings where the file does. What is in it is not looked at here.


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


# Where a Python process's interpreter lock lies, so that waits for it can be told from others.
#
# The main interpreter's lock is part of the variable `_PyRuntime` (CPython 3.9 to 3.14):
# a futex inside that variable is the lock, or one of the runtime's own that are held for
# an instant. Subinterpreters with a lock of their own have it elsewhere: not seen.


VERSIONS = tuple(f"3.{minor}" for minor in range(9, 15))


@dataclass(frozen=True, slots=True)
class Gil:
    """Addresses in the process; an empty range with the reason where it is not known."""

    start: int = 0
    end: int = 0
    why: str = ""
    library: Library | None = field(default=None, compare=False)  # the interpreter's file


class GilFinder:
    """Finds the lock of processes; a file is read once per content."""

    def __init__(self, runtimes: RuntimeFinder | None = None) -> None:
        self._runtimes = runtimes or RuntimeFinder()

    def gil_of(self, pid: int) -> Gil | None:
        """None: no Python runs in this process. Raises ProcessLookupError when it is gone."""
        runtime = self._runtimes.runtime_of(pid)
        return lock_of(runtime) if runtime else None


def lock_of(runtime: Runtime) -> Gil:
    """The lock of an interpreter that was found."""
    why = _why_no_lock(runtime)
    if why:
        return Gil(why=why, library=runtime.library)
    return Gil(runtime.start, runtime.end, library=runtime.library)


def _why_no_lock(runtime: Runtime) -> str:
    """Why the lock is not watched; empty when it can be."""
    if runtime.free_threaded:
        return "a free-threaded Python has no interpreter lock"
    version = f"3.{runtime.minor}" if runtime.minor is not None else runtime.version
    if not runtime.why and version not in VERSIONS:
        return f"Python {version or 'of unknown version'}: only {VERSIONS[0]} to {VERSIONS[-1]} are known"
    return runtime.why
