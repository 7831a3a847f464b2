"""Commands that run as they stand: how this program is called here, and how an extra gets to it.

In a clone it lies in `.venv/bin`, where neither the shell nor sudo looks. In the environment that pipx made
there is no pip, and Debian's own refuses; a wheel that is in no index is named as the file it came from.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

SUDO_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # where sudo looks
NAMES = (
    "check|trace|explain|query|merge|export|demo|dashboard|mcp|schema|annotate|fleet|cost|version"
    "|completion|--help"
)
COMMAND = re.compile(rf"(?<![\w/.-])(sudo )?ingero(?= (?:{NAMES})\b)")
EXTRA = re.compile(r"pip install '(ingero\[[a-z-]+\])'")
PIPX_MADE = "pipx_metadata.json"  # lies in each environment of pipx


def runnable(text: str) -> str:
    """The text with `ingero ...`, `sudo ingero ...` and `pip install 'ingero[...]'` as they work here."""
    text = EXTRA.sub(lambda found: _install(Path(sys.prefix), found[1]), text)
    return COMMAND.sub(lambda found: how_we_are_called(bool(found[1])), text)


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


def _install(environment: Path, extra: str) -> str:
    wheel = _wheel()
    wanted = shlex.quote(f"{extra} @ {wheel}") if wheel else f"'{extra}'"
    sudo = "" if os.access(environment, os.W_OK) else "sudo "
    if (environment / PIPX_MADE).is_file():
        pipx, home = environment.parents[1], os.environ.get("HOME")
        of_all = "" if home and pipx.is_relative_to(home) else f"PIPX_HOME={shlex.quote(str(pipx))} "
        return f"{sudo}{of_all}pipx inject ingero {wanted}"
    pip = environment / "bin/pip"
    if sys.prefix != sys.base_prefix and shutil.which("pip") != str(pip):
        return f"{sudo}{shlex.quote(str(pip))} install {wanted}"
    return f"pip install {wanted}"


def _wheel() -> str | None:
    """Where it was installed from, if that is a file that is still there."""
    try:
        said = metadata.distribution("ingero").read_text("direct_url.json")
        url = str(json.loads(said)["url"]) if said else ""
        there = url.endswith(".whl") and Path(unquote(urlsplit(url).path)).is_file()
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError, OSError):
        return None
    return url if there and url.startswith("file://") else None
