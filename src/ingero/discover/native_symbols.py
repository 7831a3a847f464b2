"""What the instruction addresses of a process are called.

Addresses become the function that holds them, or module+0xaddress where the file has no
symbol there; an address outside executable memory becomes nothing, and whoever unwound
it was wrong. Names are looked up for many addresses at once and remembered.
"""

from __future__ import annotations

import os
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingero.discover.code_files import CodeFiles, FileKey, FunctionTable, file_key
from ingero.discover.libraries import MAX_MAPS_BYTES, Mapping, parse_executable, path_for_kernel
from ingero.discover.processes import ProcessHandle, parse_stat, printable, same_start
from ingero.model.stack import NativeFrame, lookups
from ingero.native.demangle import demangle

MAX_PROCESSES = 1024
MAX_FRAMES = 65536  # remembered per process
MAX_UNREAD = 256
# Reading mappings may take a twentieth of the time, a fifth when they changed. Each reading that shows
# nothing new halves that: stacks of code without frame pointers end in addresses that are no code.
PAUSE, STALE_PAUSE, MOST_PATIENCE = 20, 5, 64
TRAMPOLINE = "[uprobes]"  # the kernel's, in place of the return address of a probed function


class _Place(NamedTuple):
    """An address looked up, its name not yet readable."""

    address: int
    module: str
    offset: int
    file: CodeFile | None
    table: FunctionTable | None
    row: int


class NativeSymbols:
    """Names for addresses of many processes."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._files = CodeFiles()
        self._spaces: OrderedDict[int, CodeSpace] = OrderedDict()
        self.missed: Counter[str] = Counter()  # addresses without a name, by reason
        self.unread: dict[str, str] = {}  # files whose functions cannot be named, and why

    def look(self, pids: Iterable[int]) -> None:
        """Processes that mapped something or became another program: read them now, or soon."""
        for pid in pids:
            space = self._spaces.get(pid)
            if space:
                space.stale = True
            self._current(pid, 0)

    def mapped(self, pids: Iterable[int]) -> None:
        """Processes that mapped something of any kind: unknown addresses may be in it."""
        for pid in pids:
            if space := self._spaces.get(pid):
                space.patience = 1

    def forget(self, pids: Iterable[int]) -> None:
        for pid in pids:
            self._spaces.pop(pid, None)

    def resolve(self, pid: int, addresses: Sequence[int], start_ns: int = 0) -> list[NativeFrame]:
        """One stack, innermost first, up to the first address that is no code."""
        raw = np.array(addresses, np.uint64)
        frames = self.frames_at(pid, lookups(raw), start_ns)
        return frames[: frames.index(None)] if None in frames else frames  # type: ignore[return-value]

    def frames_at(
        self, pid: int, addresses: NDArray[np.uint64], start_ns: int = 0
    ) -> list[NativeFrame | None]:
        """A frame for each address (as lookups() gives it), None where there is no executable memory."""
        asked = addresses.tolist()
        space = self._current(pid, start_ns)
        if space is None:
            self.missed["process gone"] += len(asked)
            return [None] * len(asked)
        wanted = np.array(sorted(set(asked) - space.frames.keys()), np.uint64)
        if len(wanted):
            space = self._learn(pid, space, wanted)
        return [space.frames.get(address) for address in asked]

    def _current(self, pid: int, start_ns: int) -> CodeSpace | None:
        space = self._spaces.get(pid)
        if space is None or space.stale or (start_ns and not same_start(space.start_ns, start_ns)):
            space = self._read(pid, space)
        if space is None or (start_ns and not same_start(space.start_ns, start_ns)):
            return None  # the number belongs to another process by now
        self._spaces.move_to_end(pid)
        return space

    def _read(self, pid: int, before: CodeSpace | None) -> CodeSpace | None:
        """The mappings as they are now; as they were, while it is too early or the process is gone."""
        began_ns = self._now_ns()
        if before and began_ns < before.read_ns + _pause(before) * before.took_ns:
            return before
        space = read_space(pid, before)
        if space is None:
            if before:
                before.stale = False
            return before
        if before and (space.start_ns, space.mappings) == (before.start_ns, before.mappings):
            space.patience = min(2 * before.patience, MOST_PATIENCE)
        space.read_ns = self._now_ns()
        space.took_ns = space.read_ns - began_ns
        self._spaces[pid] = space
        if len(self._spaces) > MAX_PROCESSES:
            self._spaces.popitem(last=False)
        return space

    def _learn(self, pid: int, space: CodeSpace, addresses: NDArray[np.uint64]) -> CodeSpace:
        rows = space.find(addresses)
        if (rows < 0).any():
            space = self._read(pid, space) or space
            rows = space.find(addresses)
        self.missed["no code there"] += int((rows < 0).sum())
        if len(space.frames) > MAX_FRAMES:
            space.frames.clear()
        places = list(self._places(space, addresses, rows))
        self._name(places)
        for place in places:
            space.frames[place.address] = NativeFrame(self._function(place), place.module, place.offset)
        return space

    def _places(
        self, space: CodeSpace, addresses: NDArray[np.uint64], rows: NDArray[np.int64]
    ) -> Iterator[_Place]:
        for row in np.unique(rows[rows >= 0]).tolist():
            mapping, here = space.mappings[row], addresses[rows == row]
            offsets = here - np.uint64(mapping.start) + np.uint64(mapping.offset)
            module = module_name(mapping)
            file = None if module.startswith("[") else space.files[mapping]
            table = None if module.startswith("[") else self._table(file, module, len(here))
            found = np.full(len(here), -1, np.int64)
            if table:
                offsets = table.addresses(offsets)
                found = table.find(offsets)
                self.missed["no symbol"] += int((found < 0).sum())
            for address, offset, symbol in zip(here.tolist(), offsets.tolist(), found.tolist(), strict=True):
                yield _Place(address, module, offset, file, table, symbol)

    def _table(self, file: CodeFile | None, module: str, count: int) -> FunctionTable | None:
        table = self._files.table(file.key, file.paths) if file else "the file cannot be opened"
        if isinstance(table, str):
            self.missed["file not readable"] += count
            if len(self.unread) < MAX_UNREAD:
                self.unread[module] = table
            return None
        return table

    def _name(self, places: list[_Place]) -> None:
        """Readable names for the rows that have none yet, all in one go."""
        wanted: dict[CodeFile, dict[int, FunctionTable]] = {}
        for place in places:
            if (
                place.file
                and place.table
                and place.row >= 0
                and place.row not in self._files.names(place.file.key)
            ):
                wanted.setdefault(place.file, {})[place.row] = place.table
        raw: list[bytes] = []
        for file, rows in wanted.items():
            raw += self._files.raw_names(file.key, file.paths, next(iter(rows.values())), list(rows))
        texts = iter(demangle(raw))
        for file, rows in wanted.items():
            named = {row: text for row, text in zip(rows, texts, strict=False) if text}
            self._files.names(file.key).update(named)

    def _function(self, place: _Place) -> str:
        if place.file and place.row >= 0 and (name := self._files.names(place.file.key).get(place.row)):
            return name
        if place.module == TRAMPOLINE:
            return "[caller hidden by a probe]"
        if place.module.startswith("["):  # code made at run time is elsewhere in every run
            return place.module
        return f"{place.module.rpartition('/')[2]}+0x{place.offset:x}"


def _pause(space: CodeSpace) -> int:
    """Times as long as it took to read."""
    return STALE_PAUSE if space.stale else PAUSE * space.patience


# The executable memory of one process: which file and place an address belongs to.
#
# What was read is kept: a process that has ended can still be told about. The files are
# looked at when the mappings are read, so that afterwards they can be opened by name and
# known to be the same ones.


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
