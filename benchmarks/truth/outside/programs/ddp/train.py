"""Starts a process for each rank, as torchrun does, and waits for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from runbook import Run


def main() -> None:
    run = Run()
    rank_program = Path(__file__).parent / "rank.py"
    ranks = []
    for rank in range(run["ranks"]):
        numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(run["ranks"])}
        command = [sys.executable, str(rank_program), str(run.folder)]
        ranks.append(subprocess.Popen(command, env=os.environ | numbers))
        (run.folder / f"rank{rank}.pid").write_text(str(ranks[-1].pid))
    for each in ranks:
        each.wait()


if __name__ == "__main__":
    main()
