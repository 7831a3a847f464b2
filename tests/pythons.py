"""The Python interpreters of this machine that tests start: pyenv's, the system's, and those named in
INGERO_PYTHONS (commands that run one, separated by colons)."""

from __future__ import annotations

import os
import re
from pathlib import Path

FIRST, LAST = 9, 14

ALL = [*sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3")), Path("/usr/bin/python3")]


def _minor(python: Path) -> int:
    match = re.search(r"python3\.(\d+)", str(python.resolve()))
    return int(match[1]) if match else 0


MORE = [Path(each) for each in os.environ.get("INGERO_PYTHONS", "").split(":") if each]
HERE = [str(each) for each in ALL if each.exists() and FIRST <= _minor(each) <= LAST]
SUPPORTED = HERE + [str(each) for each in MORE if each.exists()]
