"""Counts of all fuzzing so far, added up over runs, and their table in docs/reliability.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks import reliability

COUNTS = "counts.json"


def counts(folder: Path) -> dict[str, list[int]]:
    """By target: inputs tried, failures found."""
    path = folder / COUNTS
    return json.loads(path.read_text()) if path.exists() else {}


def add(folder: Path, name: str, tried: int, failed: int) -> None:
    known = counts(folder)
    before = known.get(name, [0, 0])
    known[name] = [before[0] + tried, before[1] + failed]
    (folder / COUNTS).write_text(json.dumps(known))


def section(known: dict[str, list[int]]) -> str:
    rows = [f"| {name} | {tried:,} | {failed} |" for name, (tried, failed) in known.items()]
    tried, failed = (sum(each[column] for each in known.values()) for column in (0, 1))
    return "\n".join(
        ["| target | inputs | failed |", "|---|--:|--:|", *rows, f"| all | {tried:,} | {failed} |"]
    )


def write(folder: Path) -> None:
    reliability.write("fuzz", section(counts(folder)))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
