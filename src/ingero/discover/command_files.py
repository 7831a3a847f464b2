"""Which files a command leads to: those it names, and those the loader would map along with them."""

from __future__ import annotations

import os
import re
import shutil
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from ingero.errors import FileFormatError
from ingero.native.elf import ElfFile

# What a command names: settings, programs, scripts and folders.
#
# Read off its words and off the text of the scripts among them, which may start other
# scripts: `env LD_LIBRARY_PATH=/opt/x/lib job`, `bash run.sh`. Nothing is executed, so a
# path that is put together when the script runs is not found. Reads little of each file
# and few of them; what it finds is where to look, never what is true.

MAX_SCRIPTS = 16
MAX_SCRIPT_BYTES = 256 << 10
MAX_TOKENS = 20_000  # of one text
MAX_PLAIN_WORDS = 200  # of one text: each may cost a look into every folder of PATH
MAX_PROGRAMS = 32
MAX_FOLDERS = 256
SCRIPTS = (".sh", ".bash", ".zsh", ".py", ".env", ".sbatch", ".slurm")
LISTS = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PATH")  # settings that are added to what there is
_ASSIGNMENT = re.compile(r"(-*)([A-Za-z_][\w-]*)=(.*)", re.DOTALL)
_TOKEN = re.compile(r"[^\s\"'`;|&<>(){}\[\],]+|\$\{\w+\}[^\s\"'`;|&<>(){}\[\],]*")
_SEVERAL = re.compile(r"[\s;|&]")


@dataclass(slots=True)
class Mentions:
    """In the order they were met."""

    env: dict[str, str]
    programs: list[str] = field(default_factory=list)  # files that run: ELF or scripts
    folders: list[Path] = field(default_factory=list)
    homes: list[Path] = field(default_factory=list)  # of its own programs and scripts: not found by PATH


def read_mentions(command: Sequence[str], env: Mapping[str, str], cwd: Path | None = None) -> Mentions:
    """`cwd`: where the command will run; None: names without a folder are those of PATH only."""
    reader = _CommandReader(Mentions(dict(env)), cwd)
    for word in command[:64]:
        reader.word(word, cwd)
    return reader.found


class _CommandReader:
    def __init__(self, found: Mentions, cwd: Path | None) -> None:
        self.found = found
        self._cwd = cwd
        self._seen: set[str] = set()
        self._scripts = 0

    def word(self, word: str, base: Path | None) -> None:
        """One word: a setting, a text of its own (sh -c TEXT), or names."""
        if not word or "\0" in word or len(word) > MAX_SCRIPT_BYTES:
            return
        if _SEVERAL.search(word):
            self._text(word, base)
            return
        setting = _ASSIGNMENT.fullmatch(word)
        if setting:
            word = self._expanded(setting[3])
            if not setting[1]:
                self._set(setting[2], word)
        for part in self._expanded(word).split(":"):
            self._name(part, base)

    def _set(self, name: str, value: str) -> None:
        before = self.found.env.get(name)
        self.found.env[name] = f"{value}:{before}" if before and name in LISTS else value

    def _expanded(self, text: str) -> str:
        return Template(text).safe_substitute(self.found.env) if "$" in text else text

    def _text(self, text: str, base: Path | None) -> None:
        plain = 0
        for index, token in enumerate(_TOKEN.finditer(text)):
            word = token[0]
            if index >= MAX_TOKENS:
                return
            if "/" not in word and "=" not in word and not word.endswith(SCRIPTS):
                plain += 1
                if plain > MAX_PLAIN_WORDS:
                    continue
            self.word(word, base)

    def _name(self, name: str, base: Path | None) -> None:
        """A file or folder, where there is one of that name."""
        if not name or name.startswith("-") or len(name) > 4096:
            return
        for path in self._places(name, base):
            if path in self._seen:
                return
            self._seen.add(path)
            if self._take(Path(path), "/" in name):
                return

    def _take(self, path: Path, with_folder: bool) -> bool:
        """Whether there is such a thing."""
        try:
            mode = path.stat().st_mode
        except OSError:
            return False
        if stat.S_ISDIR(mode) and with_folder and len(self.found.folders) < MAX_FOLDERS:
            self.found.folders.append(path)
        elif stat.S_ISREG(mode):
            self._file(path, own=str(path.parent) not in self._path_folders())
        return True

    def _places(self, name: str, base: Path | None) -> list[str]:
        if name.startswith("/"):
            return [name]
        if name.startswith("~/"):
            return [self.found.env.get("HOME", "") + name[1:]]
        here = [os.path.normpath(folder / name) for folder in (self._cwd, base) if folder]
        if "/" in name:
            return here
        on_path = shutil.which(name, path=self.found.env.get("PATH", os.defpath))
        return [*([on_path] if on_path else []), *here]

    def _path_folders(self) -> list[str]:
        return self.found.env.get("PATH", os.defpath).split(":")

    def _file(self, path: Path, own: bool) -> None:
        try:
            with path.open("rb") as file:
                head = file.read(MAX_SCRIPT_BYTES)
        except OSError:
            return
        script = head.startswith(b"#!") or path.suffix in SCRIPTS
        if ".so" in path.name:
            self.found.folders.append(path.parent)
        if not (script or head.startswith(b"\x7fELF")) or len(self.found.programs) >= MAX_PROGRAMS:
            return
        self.found.programs.append(str(path))
        if own:
            self.found.homes.append(path.parent)
        if script and b"\0" not in head and self._scripts < MAX_SCRIPTS:
            self._scripts += 1
            self._text(head.decode("utf-8", "replace"), path.parent)


# Files the loader would map along with a program, found the way it finds them.
#
# Run paths of the file and of those that led to it, LD_LIBRARY_PATH, the loader's cache,
# the system's folders. Not told apart: RPATH and RUNPATH, and versions for better
# processors; a file too many costs nothing, one too few costs the first calls.


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
