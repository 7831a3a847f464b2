"""Python interpreters among the processes: which version, linked how.

The version is read from the interpreter's own file (`Py_Version`, from 3.11), else from
its name or from the folder its extension modules come from, because an executable may
be called anything. Frames are not read here: this only says what is there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ingero.discover.libraries import Mapping, path_for_kernel, read_maps
from ingero.discover.processes import printable
from ingero.errors import FileFormatError
from ingero.native.elf import ElfFile, find_in

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
