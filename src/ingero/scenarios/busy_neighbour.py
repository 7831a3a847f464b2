"""A program that wants a core all the time: `python -m ingero.scenarios.busy_neighbour CORES`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

NAME = "busy-neighbour"


def main() -> None:
    os.sched_setaffinity(0, {int(core) for core in sys.argv[1].split(",")})
    Path("/proc/self/comm").write_text(NAME)
    started_by = os.getppid()
    while os.getppid() == started_by:  # whoever started us is gone: so are we
        for _ in range(10_000_000):
            pass


if __name__ == "__main__":
    main()
