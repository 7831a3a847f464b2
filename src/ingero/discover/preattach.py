"""Library files a command about to start is likely to load.

Probes are put on these before the command runs, so that its first calls are seen; a
file it never loads costs nothing. This is a guess by looking only: nothing is executed,
neither the command's interpreter nor ldconfig. What was guessed wrong is found once
the process has mapped it (libraries.py), and the time until then is told (agent/missed_calls.py).
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ingero.discover.command_files import (
    LD_CACHE,
    Mentions,
    cache_entries,
    loaded_with,
    read_mentions,
    run_paths,
)
from ingero.discover.libraries import Library, LibraryFinder, kind_of, of_the_system
from ingero.discover.processes import printable
from ingero.errors import FileFormatError
from ingero.native.elf import EM_AARCH64, EM_X86_64, ElfFile

MAX_FOLDER_ENTRIES = 10_000
MAX_WALKED = 20_000  # names below one folder: some 30 ms
MAX_LISTED_BYTES = 64 << 20  # of what packages say they installed
MAX_SYMBOL_BYTES = 16 << 20  # a program's own, read for a runtime linked into it
MAX_FILES = 64
MACHINE = {"x86_64": EM_X86_64, "aarch64": EM_AARCH64}.get(platform.machine(), 0)

_INTERPRETER = re.compile(r"python[0-9.]*t?$")
# What a launcher such as torchrun starts with; pip writes the second form for long paths.
_SHEBANG = re.compile(rb"\A#! ?(?:/\S*/env (?:-S )?)?(\S*python[0-9.]*t?)(?:\s|$)")
_LONG_SHEBANG = re.compile(rb"\A#!/bin/sh\n'''exec' \"?([^\"\n]*python[0-9.]*t?)\"? ")
_LISTED = re.compile(rb"^([^,\n]*/)?lib(?:cuda|nccl)[^/,\n]*\.so[^/,\n]*", re.MULTILINE)
_NO_WALK = frozenset({"/", "/proc", "/sys", "/dev", "/usr", "/usr/bin", "/bin", "/etc", "/run"})


def preattach_candidates(
    command: Sequence[str],
    env: Mapping[str, str],
    finder: LibraryFinder | None = None,
    ld_cache: Path = LD_CACHE,
    cwd: Path | None = None,
    everywhere: bool = True,
) -> list[Library]:
    """Distinct library files, the ones the command names itself first.

    `cwd`: where it will run. `everywhere`: also what packages list and what lies below its own
    folders, which may be many; not where each probe is slow to come off (the perf shape).
    """
    named = read_mentions(command, env, cwd)
    cache = cache_entries(ld_cache)
    needed = list(loaded_with([*named.programs, *_preloaded(named.env)], named.env, cache, MACHINE))
    found: dict[tuple[int, int], Library] = {}
    roots = [*named.homes, *([cwd] if cwd else [])] if everywhere else []
    folders = _folders(named, everywhere)
    for library in _libraries(named, needed, folders, [path for _, path in cache], roots, finder):
        found.setdefault(library.file, library)
        if len(found) >= MAX_FILES:
            break
    return list(found.values())


def _libraries(
    named: Mentions,
    needed: list[str],
    folders: Iterable[Path],
    cached: list[str],
    roots: list[Path],
    finder: LibraryFinder | None,
) -> Iterator[Library]:
    """The likeliest first: there is a limit."""
    for path in (*_preloaded(named.env), *needed, *_in_folders(folders), *cached):
        if library := _library(path):
            yield library
    finder = finder or LibraryFinder()
    for path in (*named.programs, *(path for path in needed if not of_the_system(path))):
        if library := _own_runtime(path, finder):
            yield library
    for path in _below(roots):
        if library := _library(path):
            yield library


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


def _own_runtime(path: str, finder: LibraryFinder) -> Library | None:
    """A program, or a library of its own, with a runtime linked into it."""
    with suppress(FileFormatError, OSError), ElfFile(path) as elf:
        status = os.fstat(elf.fd)
        small = elf.machine == MACHINE and elf.symbol_bytes <= MAX_SYMBOL_BYTES
        if small and kind_of(path) is None and finder.carries(path, status):
            return Library(path, printable(os.fsencode(path)), status.st_dev, status.st_ino, "static")
    return None


def _preloaded(env: Mapping[str, str]) -> list[str]:
    return [path for path in re.split("[: ]", env.get("LD_PRELOAD", "")) if path.startswith("/")]


def _in_folders(folders: Iterable[Path]) -> Iterator[str]:
    for folder in dict.fromkeys(folders):
        with suppress(OSError), os.scandir(folder) as entries:
            listed = [entry.path for _, entry in zip(range(MAX_FOLDER_ENTRIES), entries, strict=False)]
            yield from sorted(path for path in listed if kind_of(path))


def _below(roots: Iterable[Path]) -> Iterator[str]:
    """Libraries anywhere below a program's own folder, nearest first, as far as that is quick."""
    for root in dict.fromkeys(roots):
        waiting, seen = deque([str(root)] if str(root) not in _NO_WALK else []), 0
        while waiting and seen < MAX_WALKED:
            with suppress(OSError), os.scandir(waiting.popleft()) as entries:
                for entry in entries:
                    seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif kind_of(entry.name):
                        yield entry.path


def _folders(named: Mentions, everywhere: bool) -> Iterator[Path]:
    env = named.env
    yield from (Path(part) for part in re.split("[:;]", env.get("LD_LIBRARY_PATH", "")) if part)
    yield from named.folders
    yield from _told_by_programs(named.programs)
    for interpreter in _interpreters(named):
        for prefix in _prefixes(interpreter)[0]:
            yield prefix / "lib"
        for site in site_packages(interpreter, env):
            yield from _globbed(site, "nvidia/*/lib")
            yield site / "torch" / "lib"
            yield from _installed(site) if everywhere else ()
    for home in (env.get("CUDA_HOME"), env.get("CUDA_PATH"), "/usr/local/cuda"):
        if home:
            yield from (Path(home, "lib64"), Path(home, "lib"))
            yield from _globbed(Path(home), "targets/*/lib")


def _installed(site: Path) -> Iterator[Path]:
    """Folders in which packages say they put such a library (RECORD, of pip and others)."""
    budget = MAX_LISTED_BYTES
    for record in _globbed(site, "*.dist-info/RECORD"):
        with suppress(OSError):
            listed = record.read_bytes()[:budget] if record.stat().st_size <= budget else b""
            budget -= len(listed)
            folders = {match[1] or b"" for match in _LISTED.finditer(listed)}
            yield from (site / os.fsdecode(folder) for folder in sorted(folders))


def _told_by_programs(programs: Iterable[str]) -> Iterator[Path]:
    """Folders written into a program for libraries it loads while it runs."""
    for path in programs:
        with suppress(FileFormatError, OSError), ElfFile(path) as elf:
            yield from (Path(folder) for folder in run_paths(path, elf))


def _globbed(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _interpreters(named: Mentions) -> list[Path]:
    """Pythons that may run: named, behind a script (torchrun), or of the environment that is active."""
    found = find_interpreters(named.programs, named.env)
    for home in (named.env.get("VIRTUAL_ENV"), named.env.get("CONDA_PREFIX")):
        if home and Path(home, "bin", "python").exists():
            found.append(Path(home, "bin", "python"))
    return list(dict.fromkeys(found))


def find_interpreters(programs: Iterable[str], env: Mapping[str, str]) -> list[Path]:
    """The Pythons among programs, also behind a script (torchrun)."""
    found = []
    for path in programs:
        if _INTERPRETER.search(path.rpartition("/")[2]):
            found.append(Path(path))
            continue
        behind = _shebang(path)
        resolved = shutil.which(behind, path=env.get("PATH", os.defpath)) if behind else None
        if resolved:
            found.append(Path(resolved))
    return found


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
        managed = _globbed(venv, "versions/*") if interpreter.parent.name == "shims" else []  # pyenv
        return list(dict.fromkeys((venv, real, *managed))), True
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
    paths = (path for _, path in cache_entries(cache))
    return list(dict.fromkeys(path for path in paths if path.startswith("/") and kind_of(path)))
