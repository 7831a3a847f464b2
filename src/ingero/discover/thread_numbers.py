"""The numbers a process's threads have in its own pid namespace: a container counts its own."""

from __future__ import annotations

import re
from pathlib import Path

_NUMBERS = re.compile(rb"^NSpid:\s*(\d+)(?:.*\s(\d+))?$", re.MULTILINE)


def own_numbers(pid: int) -> dict[int, int]:
    """By its own number, each thread's number here. Raises ProcessLookupError when the process is gone."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
    found = {}
    for task in tasks:
        try:
            match = _NUMBERS.search((task / "status").read_bytes())
        except OSError:  # it has ended
            continue
        own = int(match[2] or match[1]) if match else int(task.name)
        found[own] = int(task.name)
    return found


def counts_its_own(pid: int) -> bool:
    """Whether its numbers are others than ours. Raises OSError when the process is gone."""
    match = _NUMBERS.search(Path(f"/proc/{pid}/status").read_bytes())
    return bool(match and match[2])
