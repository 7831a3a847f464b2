"""What a job is told and what it tells us: its settings, and when each of its steps ended.

Both lie in memory that is shared with the player: reading a setting and noting a
step cost well below a microsecond and make no system call.
"""

from __future__ import annotations

import itertools
import json
import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Any

ROOM = 200_000  # steps


def mapped(path: Path, size: int) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), size)


class Run:
    """`run["batch"]` is the setting that holds now."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = Path(folder or sys.argv[1])
        plan: dict[str, dict[str, Any]] = json.loads((self.folder / "settings.json").read_text())
        self._settings = (plan["first"], plan["first"] | plan["then"])
        self._phase = mapped(self.folder / "phase", 1)
        self._ends = mapped(self.folder / "pace", ROOM * 8)
        self._number = itertools.count()

    def __getitem__(self, name: str) -> Any:
        return self._settings[self._phase[0]][name]

    def get(self, name: str, other: Any = None) -> Any:
        return self._settings[self._phase[0]].get(name, other)

    def step(self) -> None:
        """One more is done; from any thread of one process."""
        number = next(self._number)
        if number < ROOM:
            struct.pack_into("q", self._ends, number * 8, time.monotonic_ns())
