"""The Python interpreters of this machine that tests start: pyenv's, the system's, and those named in
INGERO_PYTHONS (commands that run one, separated by colons)."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

FIRST, LAST = 9, 14
# Every kind that can be read; a test says aloud which of them this machine lacks.
KINDS = [f"3.{minor}" for minor in range(FIRST, LAST + 1)] + ["3.13t", "3.14t"]
ASK = "import sys; print(sys.version_info[1], sys.executable, 't' in sys.abiflags)"

ALL = [*sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3")), Path("/usr/bin/python3")]


class Kind(NamedTuple):
    """An interpreter as it describes itself: the command that runs it may be called anything."""

    minor: int
    free_threaded: bool
    executable: str  # within its own root

    def __str__(self) -> str:
        return f"3.{self.minor}{'t' if self.free_threaded else ''}"


@cache
def kind_of(python: str) -> Kind:
    done = subprocess.run([python, "-c", ASK], capture_output=True, text=True, check=True, timeout=60)
    minor, executable, free_threaded = done.stdout.split()
    return Kind(int(minor), free_threaded == "True", executable)


def _minor(python: Path) -> int:
    match = re.search(r"python3\.(\d+)", str(python.resolve()))
    return int(match[1]) if match else 0


def _named() -> list[str]:
    named = [each for each in os.environ.get("INGERO_PYTHONS", "").split(":") if each]
    for each in named:
        if not os.access(each, os.X_OK):
            raise FileNotFoundError(f"INGERO_PYTHONS names {each}, which cannot be run")
    return named


HERE = [str(each) for each in ALL if each.exists() and FIRST <= _minor(each) <= LAST]
SUPPORTED = HERE + _named()


def with_a_lock() -> list[str]:
    return [each for each in SUPPORTED if not kind_of(each).free_threaded]


def free_threaded() -> list[str]:
    return [each for each in SUPPORTED if kind_of(each).free_threaded]
