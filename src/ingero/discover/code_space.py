"""The executable memory of one process: which file and place an address belongs to.

What was read is kept: a process that has ended can still be told about. The files are
looked at when the mappings are read, so that afterwards they can be opened by name and
known to be the same ones.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingero.discover.code_files import FileKey, file_key
from ingero.discover.libraries import MAX_MAPS_BYTES, Mapping, parse_executable, path_for_kernel
from ingero.discover.processes import ProcessHandle, parse_stat, printable
from ingero.model.stack import NativeFrame

MAX_MAPPINGS = 16384  # executable ones of a process; torch has some 300
_NO_FILES = ("", "/dev/zero", "/anon_hugepage")  # memory, private or shared


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A mapped file as it can be opened."""

    key: FileKey
    paths: tuple[str, ...]  # of the process's own mapping, then by name should the process be gone


@dataclass(slots=True)
class CodeSpace:
    """Mappings sorted by address, and the frames already named."""

    start_ns: int  # of the process, as /proc has it
    mappings: list[Mapping]
    files: dict[Mapping, CodeFile | None]
    frames: dict[int, NativeFrame] = field(default_factory=dict)
    stale: bool = False
    read_ns: int = 0  # when, and how long it took
    took_ns: int = 0
    patience: int = 1  # grows with every reading that showed nothing new
    starts: NDArray[np.uint64] = field(init=False)
    ends: NDArray[np.uint64] = field(init=False)

    def __post_init__(self) -> None:
        self.starts = np.array([each.start for each in self.mappings], np.uint64)
        self.ends = np.array([each.end for each in self.mappings], np.uint64)

    def find(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The mapping of each address by number; -1: no executable memory."""
        if not self.mappings:
            return np.full(len(addresses), -1, np.int64)
        rows = np.searchsorted(self.starts, addresses, side="right") - 1
        return np.where((rows >= 0) & (addresses < self.ends[rows]), rows, -1)


def read_space(pid: int, before: CodeSpace | None) -> CodeSpace | None:
    """The process as it is now, with what is still true of before; None when it is gone."""
    try:
        with ProcessHandle(pid) as handle:
            mappings = parse_executable(handle.read("maps", MAX_MAPS_BYTES))[:MAX_MAPPINGS]
            start_ns = parse_stat(handle.read("stat", 4096)).start_ns
    except (OSError, ValueError, IndexError):
        return None
    if not mappings:  # a zombie
        return None
    known = before.files if before and before.start_ns == start_ns else {}
    files = {each: known[each] if each in known else _open(pid, each) for each in mappings}
    space = CodeSpace(start_ns, mappings, files)
    if before and known.keys() <= files.keys():
        space.frames = before.frames
    return space


def _open(pid: int, mapping: Mapping) -> CodeFile | None:
    if not mapping.path.startswith("/") or mapping.path in _NO_FILES:
        return None
    opened = path_for_kernel(pid, mapping)
    if opened is None:
        return None
    by_name = () if mapping.deleted else (mapping.path,)
    return CodeFile(file_key(opened[1]), (opened[0], *by_name))


def module_name(mapping: Mapping) -> str:
    """For people: the path in the process's own mount namespace."""
    if mapping.path in _NO_FILES or mapping.path.startswith("[anon"):
        return "[code made at run time]"
    return printable(os.fsencode(mapping.path))
