"""Commands that run as they stand: how this program is called here, where `ingero` may not be found.

In a clone it lies in `.venv/bin`, where neither the shell nor sudo looks.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from ingero.serve.extras import installable

SUDO_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # where sudo looks
NAMES = (
    "check|trace|explain|query|merge|export|demo|dashboard|mcp|schema|annotate|fleet|cost|version"
    "|completion|--help"
)
COMMAND = re.compile(rf"(?<![\w/.-])(sudo )?ingero(?= (?:{NAMES})\b)")


def runnable(text: str) -> str:
    """The text with `ingero ...`, `sudo ingero ...` and `pip install 'ingero[...]'` as they work here."""
    return COMMAND.sub(lambda found: how_we_are_called(bool(found[1])), installable(text))


def how_we_are_called(as_root: bool = False) -> str:
    program = _program()
    if as_root and os.geteuid() != 0:
        return f"sudo {_shortest(program, SUDO_PATH)}"
    return _shortest(program, os.environ.get("PATH", ""))


def _program() -> Path | None:
    """The file we were started as; None where that is not a program of its own (python -m)."""
    file = Path(sys.argv[0])
    return file if file.name == "ingero" and file.is_file() else None


def _shortest(program: Path | None, path: str) -> str:
    """With a slash in it neither the shell nor sudo looks anywhere else."""
    found = shutil.which("ingero", path=path)
    if program is None or (found and Path(found).samefile(program)):
        return "ingero"
    whole = str(program.absolute())
    near = os.path.relpath(whole)
    below = not near.startswith("..") and len(near) + 1 < len(whole)  # in / only the slash would be saved
    return shlex.quote(near if below else whole)
