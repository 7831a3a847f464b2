"""What a command names: settings, programs, scripts and folders.

Read off its words and off the text of the scripts among them, which may start other
scripts: `env LD_LIBRARY_PATH=/opt/x/lib job`, `bash run.sh`. Nothing is executed, so a
path that is put together when the script runs is not found. Reads little of each file
and few of them; what it finds is where to look, never what is true.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

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
    reader = _Reader(Mentions(dict(env)), cwd)
    for word in command[:64]:
        reader.word(word, cwd)
    return reader.found


class _Reader:
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
