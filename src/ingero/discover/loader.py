"""Files the loader would map along with a program, found the way it finds them.

Run paths of the file and of those that led to it, LD_LIBRARY_PATH, the loader's cache,
the system's folders. Not told apart: RPATH and RUNPATH, and versions for better
processors; a file too many costs nothing, one too few costs the first calls.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ingero.errors import FileFormatError
from ingero.native.elf import ElfFile

LD_CACHE = Path("/etc/ld.so.cache")
MAX_CACHE_BYTES = 64 << 20
MAX_LOADED = 512
SYSTEM_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")

_CACHE_MAGIC = b"glibc-ld.so.cache1.1"


def cache_entries(cache: Path = LD_CACHE) -> list[tuple[str, str]]:
    """Names and paths in the loader's cache; empty when there is none or it is damaged."""
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
    starts = (struct.unpack_from("<II", body, 48 + 24 * row + 4) for row in range(count))
    return [(_text_at(body, name), _text_at(body, path)) for name, path in starts]


def _text_at(body: memoryview, start: int) -> str:
    return os.fsdecode(bytes(body[start : start + 4096]).partition(b"\0")[0])


def run_paths(path: str, elf: ElfFile) -> list[str]:
    """Folders written into a file for its libraries."""
    origin = str(Path(os.path.realpath(path)).parent)
    full = (folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for folder in elf.run_paths)
    return [folder for folder in full if folder.startswith("/") and "\0" not in folder]


def loaded_with(
    programs: Iterable[str], env: Mapping[str, str], cache: Iterable[tuple[str, str]], machine: int
) -> Iterator[str]:
    """Paths of what the programs need, and of what that needs in turn; not the programs."""
    cached = dict(reversed(list(cache)))  # of several the first
    of_env = [part for part in env.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":") if part]
    waiting: list[tuple[str, tuple[str, ...]]] = [(path, ()) for path in programs]
    seen: set[str] = set()
    while waiting and len(seen) < MAX_LOADED:
        path, inherited = waiting.pop(0)
        with suppress(FileFormatError, OSError), ElfFile(path) as elf:
            if elf.machine != machine:
                continue
            told = (*run_paths(path, elf), *inherited)
            for name in elf.needed:
                found = _found(name, (*told, *of_env), cached)
                if found and found not in seen:
                    seen.add(found)
                    waiting.append((found, told))
                    yield found


def _found(name: str, folders: Iterable[str], cached: Mapping[str, str]) -> str | None:
    if "/" in name:
        return name
    return next(_files(name, folders), None) or cached.get(name) or next(_files(name, SYSTEM_FOLDERS), None)


def _files(name: str, folders: Iterable[str]) -> Iterator[str]:
    return (str(path) for path in (Path(folder, name) for folder in folders) if path.is_file())
