"""Library files a command about to start is likely to load.

Probes are put on these before the command runs, so that its first calls are seen; a
file it never loads costs nothing. This is a guess by looking only: nothing is executed,
neither the command's interpreter nor ldconfig. What was guessed wrong is found once
the process has mapped it (libraries.py).
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ingero.discover.libraries import Library, LibraryFinder, kind_of
from ingero.discover.processes import printable
from ingero.errors import FileFormatError
from ingero.native.elf import EM_AARCH64, EM_X86_64, ElfFile

LD_CACHE = Path("/etc/ld.so.cache")
MAX_CACHE_BYTES = 64 << 20
MAX_FOLDER_ENTRIES = 10_000
MACHINE = {"x86_64": EM_X86_64, "aarch64": EM_AARCH64}.get(platform.machine(), 0)

_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_INTERPRETER = re.compile(r"python[0-9.]*t?$")
# What a launcher such as torchrun starts with; pip writes the second form for long paths.
_SHEBANG = re.compile(rb"\A#! ?(?:/\S*/env (?:-S )?)?(\S*python[0-9.]*t?)(?:\s|$)")
_LONG_SHEBANG = re.compile(rb"\A#!/bin/sh\n'''exec' \"?([^\"\n]*python[0-9.]*t?)\"? ")


def preattach_candidates(
    command: Sequence[str],
    env: Mapping[str, str],
    finder: LibraryFinder | None = None,
    ld_cache: Path = LD_CACHE,
) -> list[Library]:
    """Distinct library files, the ones the command names itself first."""
    paths = [*_preloaded(env), *_in_folders(_folders(command, env)), *cached_paths(ld_cache)]
    found: dict[tuple[int, int], Library] = {}
    for path in paths:
        library = _library(path)
        if library:
            found.setdefault(library.file, library)
    own = _own_runtime(command, env, finder or LibraryFinder())
    if own:
        found.setdefault(own.file, own)
    return list(found.values())


def _library(path: str) -> Library | None:
    kind = kind_of(path)
    status = _native_elf(path) if kind else None
    if kind is None or status is None:
        return None
    return Library(path, printable(os.fsencode(path)), status.st_dev, status.st_ino, kind)


def _native_elf(path: str) -> os.stat_result | None:
    """Identity of a file the loader would take: of this machine, not the 32-bit twin."""
    with suppress(FileFormatError, OSError), ElfFile(path) as elf:
        if elf.machine == MACHINE:
            return os.fstat(elf.fd)
    return None


def _own_runtime(command: Sequence[str], env: Mapping[str, str], finder: LibraryFinder) -> Library | None:
    path = _resolved(command[0], env) if command else None
    status = _native_elf(path) if path else None
    if path is None or status is None or not finder.carries(path, status):
        return None
    return Library(path, printable(os.fsencode(path)), status.st_dev, status.st_ino, "static")


def _preloaded(env: Mapping[str, str]) -> list[str]:
    return [path for path in re.split("[: ]", env.get("LD_PRELOAD", "")) if path.startswith("/")]


def _in_folders(folders: Iterable[Path]) -> Iterator[str]:
    for folder in dict.fromkeys(folders):
        with suppress(OSError), os.scandir(folder) as entries:
            listed = [entry.path for _, entry in zip(range(MAX_FOLDER_ENTRIES), entries, strict=False)]
            yield from sorted(path for path in listed if kind_of(path))


def _folders(command: Sequence[str], env: Mapping[str, str]) -> Iterator[Path]:
    yield from (Path(part) for part in re.split("[:;]", env.get("LD_LIBRARY_PATH", "")) if part)
    yield from _told_by_the_program(command, env)
    interpreter = find_interpreter(command, env)
    if interpreter:
        for site in site_packages(interpreter, env):
            yield from _globbed(site, "nvidia/*/lib")
            yield site / "torch" / "lib"
    for home in (env.get("CUDA_HOME"), env.get("CUDA_PATH"), "/usr/local/cuda"):
        if home:
            yield from (Path(home, "lib64"), Path(home, "lib"))
            yield from _globbed(Path(home), "targets/*/lib")


def _told_by_the_program(command: Sequence[str], env: Mapping[str, str]) -> Iterator[Path]:
    """Folders written into a program, also behind a prefix (numactl, mpirun), for its libraries."""
    for word in command[:8]:
        path = _resolved(word, env)
        if path is None:
            continue
        origin = str(Path(os.path.realpath(path)).parent)
        with suppress(FileFormatError, OSError), ElfFile(path) as elf:
            for folder in elf.run_paths:
                full = folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
                if full.startswith("/") and "\0" not in full:
                    yield Path(full)


def _globbed(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _resolved(word: str, env: Mapping[str, str]) -> str | None:
    try:
        return shutil.which(word, path=env.get("PATH", os.defpath))
    except ValueError:  # a NUL within the word
        return None


def find_interpreter(command: Sequence[str], env: Mapping[str, str]) -> Path | None:
    """The Python that would run, also behind a script (torchrun) or a prefix (numactl, env)."""
    for word in command[:8]:
        path = _resolved(word, env)
        if path is None:
            continue
        if _INTERPRETER.search(path.rpartition("/")[2]):
            return Path(path)
        named = _shebang(path)
        behind = _resolved(named, env) if named else None
        if behind:
            return Path(behind)
    return None


def _shebang(path: str) -> str | None:
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return None
        with Path(path).open("rb") as file:
            head = file.read(1024)
    except OSError:
        return None
    match = _LONG_SHEBANG.search(head) or _SHEBANG.search(head)
    return os.fsdecode(match[1]) if match else None


def site_packages(interpreter: Path, env: Mapping[str, str]) -> list[Path]:
    """Folders the interpreter imports from, found the way it finds them itself."""
    found = [Path(part) for part in env.get("PYTHONPATH", "").split(":") if part]
    prefixes, with_user = _prefixes(interpreter)
    for prefix in prefixes:
        for pattern in (
            "lib*/python3*/site-packages",
            "lib/python3*/dist-packages",
            "local/lib/python3*/*-packages",
        ):
            found += _globbed(prefix, pattern)
    if with_user and env.get("HOME"):
        found += _globbed(Path(env["HOME"]), ".local/lib/python3*/site-packages")
    return list(dict.fromkeys(found))


def _prefixes(interpreter: Path) -> tuple[list[Path], bool]:
    venv = interpreter.absolute().parent.parent
    settings = _venv_settings(venv / "pyvenv.cfg")
    if settings is None:
        real = Path(os.path.realpath(interpreter)).parent.parent
        return list(dict.fromkeys((venv, real))), True
    if settings.get("include-system-site-packages", "").lower() != "true":
        return [venv], False
    return [venv, Path(settings.get("home", "/usr/bin")).parent], True


def _venv_settings(path: Path) -> dict[str, str] | None:
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            text = file.read(1 << 16).decode("utf-8", "replace")
    except OSError:
        return None
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip().lower(): value.strip() for name, equals, value in pairs if equals}


def cached_paths(cache: Path = LD_CACHE) -> list[str]:
    """Libraries of interest in the loader's cache; empty when there is none or it is damaged."""
    try:
        with cache.open("rb") as file:
            data = file.read(MAX_CACHE_BYTES)
    except OSError:
        return []
    at = data.find(_CACHE_MAGIC)
    if at < 0 or len(data) < at + 48:
        return []
    body = memoryview(data)[at:]
    count = min(struct.unpack_from("<I", body, 20)[0], (len(body) - 48) // 24)
    starts = (struct.unpack_from("<I", body, 48 + 24 * row + 8)[0] for row in range(count))
    paths = (os.fsdecode(bytes(body[start : start + 4096]).partition(b"\0")[0]) for start in starts)
    return list(dict.fromkeys(path for path in paths if path.startswith("/") and kind_of(path)))
