"""How busy the machine is with other things: they would be faults nobody put there."""

from __future__ import annotations

import time
from pathlib import Path

SAMPLE_S = 0.4
QUIET_SHARE = 0.10
LONGEST_S = 20.0


def _ticks() -> tuple[int, int]:
    """Busy, and all."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def busy_share() -> float:
    """Of all cores, over a moment in which nothing of ours runs."""
    busy, every = _ticks()
    time.sleep(SAMPLE_S)
    busy_after, every_after = _ticks()
    return (busy_after - busy) / max(every_after - every, 1)


def wait_until_quiet() -> float:
    """For a while; how busy it still was."""
    deadline = time.monotonic() + LONGEST_S
    share = busy_share()
    while share > QUIET_SHARE and time.monotonic() < deadline:
        share = busy_share()
    return share
