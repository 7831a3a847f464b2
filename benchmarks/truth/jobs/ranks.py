"""Starts a training script once for each rank, as launchers do.

ranks.py SETTINGS BOOK
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from settings import read_plan


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def main() -> None:
    ranks = read_plan(sys.argv[1]).usual.ranks
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    script = Path(__file__).with_name("train.py")
    children = []
    for rank in range(ranks):
        said = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
        command = [sys.executable, str(script), *sys.argv[1:3]]
        children.append(
            subprocess.Popen(
                command,
                env=os.environ | said,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                preexec_fn=die_with_parent,  # no thread runs here yet
            )
        )
    for child in children:
        child.wait()


if __name__ == "__main__":
    main()
