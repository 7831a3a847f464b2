"""Which library files a process has mapped that carry CUDA or NCCL functions.

The kernel is pointed at a file through /proc/PID/map_files: that link leads to the very
file that is mapped, in whatever mount namespace, even when it was deleted or replaced,
and follows no link a container made. Two mappings are one library when the opened file
has the same device and inode; paths prove nothing.
Files a process may load later are not looked for here (see preattach.py).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ingero.discover.processes import ProcessHandle, printable
from ingero.errors import FileFormatError
from ingero.model.numbers import Word
from ingero.native.elf import find_symbols

Kind = Literal["runtime", "driver", "nccl", "static", "python", "python3.9"]

# A file that defines one of these has the runtime, the driver or NCCL linked into it.
TELLTALES = ("cudaLaunchKernel", "cudaMalloc", "cudaMemcpyAsync", "cuLaunchKernel", "ncclAllReduce")
MAX_MAPS_BYTES = 64 << 20  # the kernel allows 65530 mappings by default; a line is some 150 bytes
MAX_REMEMBERED_FILES = 8192

_NAMES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("runtime", re.compile(r"libcudart[-.\w]*\.so(\.|$)")),
    ("driver", re.compile(r"libcuda\.so(\.|$)")),
    ("nccl", re.compile(r"libnccl(?!-(?:net|tuner|profiler|env)\b)[-.\w]*\.so(\.|$)")),
)
_SYSTEM_FOLDERS = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")
_GPU_NAMES = re.compile(r"lib(cu|nv|torch|tensor|onnx)")
_LINE = re.compile(
    rb"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) ([0-9]+)(?: +(.*))?", re.DOTALL
)
_DELETED = " (deleted)"

FileKey = tuple[int, int, int, int]
Opened = Annotated[str, Meta(pattern=r"^[^\x00]+$", max_length=8192)]  # no other can be opened


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of /proc/PID/maps."""

    start: int
    end: int
    executable: bool
    offset: int
    inode: int
    path: str
    deleted: bool


@dataclass(frozen=True, slots=True)
class Library:
    """A distinct file with functions to trace; (dev, inode) says which."""

    path_for_kernel: Opened
    path: str  # for people: the name it was mapped under, in its own mount namespace
    dev: Word
    inode: Word
    kind: Kind
    segments: tuple[tuple[Word, Word, Word], ...] = ()  # executable: first address, end, offset in the file
    deleted: bool = False

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Executable addresses in the process."""
        return tuple((start, end) for start, end, _ in self.segments)

    @property
    def file(self) -> tuple[int, int]:
        return self.dev, self.inode


def parse_maps(raw: bytes) -> list[Mapping]:
    """Mappings of files; the kernel writes a newline within a path as \\012."""
    return [each for each in map(_mapping, raw.split(b"\n")) if each and each.path.startswith("/")]


def parse_executable(raw: bytes) -> list[Mapping]:
    """Executable memory, whatever is behind it: without a file the path is empty or like [vdso]."""
    lines = (line for line in raw.split(b"\n") if line.partition(b" ")[2][2:3] == b"x")
    return [each for each in map(_mapping, lines) if each]


def _mapping(line: bytes) -> Mapping | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    path = os.fsdecode((match[8] or b"").replace(b"\\012", b"\n"))
    deleted = path.endswith(_DELETED)
    start, end, offset = (int(match[group], 16) for group in (1, 2, 4))
    plain = path.removesuffix(_DELETED)
    return Mapping(start, end, b"x" in match[3], offset, int(match[7]), plain, deleted)


def kind_of(path: str) -> Kind | None:
    """What a file is by its name."""
    name = path.rpartition("/")[2]
    return next((kind for kind, pattern in _NAMES if pattern.match(name)), None)


def read_maps(pid: int) -> list[Mapping]:
    """File mappings of a process; empty when it is gone or may not be read."""
    try:
        with ProcessHandle(pid) as handle:
            return parse_maps(handle.read("maps", MAX_MAPS_BYTES))
    except OSError:
        return []


def path_for_kernel(pid: int, mapping: Mapping) -> tuple[str, os.stat_result] | None:
    """A path that leads to exactly the mapped file, and its identity."""
    path = f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}"
    opened = _identity(path)
    if opened is None or not stat.S_ISREG(opened.st_mode):
        path, opened = _below_root(pid, mapping)
    return (path, opened) if opened is not None and stat.S_ISREG(opened.st_mode) else None


def _identity(path: str) -> os.stat_result | None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)


def _below_root(pid: int, mapping: Mapping) -> tuple[str, os.stat_result | None]:
    """Without the right to use map_files: the path below the process's root, no link followed."""
    path = f"/proc/{pid}/root{mapping.path}"
    if mapping.deleted:
        return path, None
    opened = None
    with suppress(OSError, ValueError):
        opened = _walk(f"/proc/{pid}/root", [part for part in mapping.path.split("/") if part])
    # maps may show another device than stat does (btrfs, overlayfs), the inode it does not change
    return path, opened if opened is not None and opened.st_ino == mapping.inode else None


def _walk(root: str, parts: list[str]) -> os.stat_result:
    fd = os.open(root, os.O_PATH | os.O_CLOEXEC)
    try:
        for part in parts:
            below = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = below
        return os.fstat(fd)
    finally:
        os.close(fd)


class LibraryFinder:
    """Finds libraries of processes and remembers which files carry traced functions."""

    def __init__(self, names: Iterable[str] = TELLTALES) -> None:
        self._names = tuple(names)
        self._carries: dict[FileKey, bool] = {}

    def libraries_of(self, pid: int) -> list[Library]:
        """Every distinct file of interest, in the order of the address space; empty when gone."""
        mappings = [each for each in read_maps(pid) if each.executable]
        by_place: dict[tuple[str, int, bool], list[Mapping]] = {}
        for mapping in mappings:
            by_place.setdefault((mapping.path, mapping.inode, mapping.deleted), []).append(mapping)
        uses_gpu = _uses_gpu(pid, mappings)
        executable = _executable_of(pid)
        found: dict[tuple[int, int], Library] = {}
        for group in by_place.values():
            library = self._examine(pid, group, uses_gpu, executable)
            if library:
                found.setdefault(library.file, library)
        return list(found.values())

    def _examine(self, pid: int, group: list[Mapping], uses_gpu: bool, executable: str) -> Library | None:
        path = group[0].path
        kind = kind_of(path)
        if kind is None and not _worth_scanning(path, uses_gpu, executable):
            return None
        opened = next((each for each in (path_for_kernel(pid, m) for m in group) if each), None)
        if opened is None:
            return None
        link, status = opened
        if kind is None:
            if not self.carries(link, status):
                return None
            kind = "static"
        segments = tuple((each.start, each.end, each.offset) for each in group)
        shown = printable(os.fsencode(path))
        return Library(link, shown, status.st_dev, status.st_ino, kind, segments, group[0].deleted)

    def executable_carries(self, pid: int) -> bool:
        """Whether a process's program itself has a runtime linked in; far quicker than its mappings."""
        path = f"/proc/{pid}/exe"
        try:
            status = Path(path).stat()
        except OSError:
            return False
        return self.carries(path, status)

    def kind_at(self, path: str, file: tuple[int, int]) -> Kind | Literal["unknown"] | None:
        """What a file that a process had mapped was, when the process can no longer be asked.

        Unknown: a program that is gone or was replaced; it may have had a runtime inside.
        """
        kind = kind_of(path)
        if kind is not None or ".so" in path or path.startswith((*_SYSTEM_FOLDERS, "/bin/", "/usr/bin/")):
            return kind
        status = _identity(path)
        if status is None or status.st_ino != file[1]:
            return "unknown"
        return "static" if stat.S_ISREG(status.st_mode) and self.carries(path, status) else None

    def carries(self, path: str, status: os.stat_result) -> bool:
        """Whether the file defines a traced function; a file is read once per content."""
        key = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        if key not in self._carries:
            if len(self._carries) >= MAX_REMEMBERED_FILES:
                self._carries.clear()
            try:
                self._carries[key] = bool(find_symbols(path, self._names))
            except FileFormatError:  # not an ELF file of ours, so there is nothing in it to probe
                self._carries[key] = False
        return self._carries[key]


def of_the_system(path: str) -> bool:
    """In a folder of the distribution, and by its name nothing that works for a GPU."""
    return path.startswith(_SYSTEM_FOLDERS) and not _GPU_NAMES.match(path.rpartition("/")[2])


def _worth_scanning(path: str, uses_gpu: bool, executable: str) -> bool:
    if path == executable:
        return True
    if not uses_gpu or ".so" not in path:
        return False
    return not of_the_system(path)


def _executable_of(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink()).removesuffix(_DELETED)
    except OSError:
        return ""


def _uses_gpu(pid: int, mappings: list[Mapping]) -> bool:
    if any(kind_of(each.path) == "driver" or each.path.startswith("/dev/nvidia") for each in mappings):
        return True
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return any(_leads_to_gpu(entry.path) for _, entry in zip(range(4096), entries, strict=False))
    except OSError:
        return False


def _leads_to_gpu(link: str) -> bool:
    try:
        return str(Path(link).readlink()).startswith("/dev/nvidia")
    except OSError:
        return False
