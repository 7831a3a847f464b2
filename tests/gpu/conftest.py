"""Tests on a real card. Without one, or without PyTorch, root or tracefs, they skip aloud."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from benchmarks import jobs

PROGRAMS = Path(__file__).parent / "programs.py"


def missing() -> str:
    if not Path("/dev/nvidiactl").exists():
        return "no NVIDIA card here"
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed"
    return "" if os.geteuid() == 0 else "needs root"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)
    reason = missing()
    for item in items:
        if reason and str(item.path).startswith(here):
            item.add_marker(pytest.mark.skip(reason=reason))


class Traced:
    """One program of programs.py traced from its first call, and what it said of itself."""

    def __init__(self, folder: Path, name: str, *words: str, **environment: str) -> None:
        import json
        import subprocess
        import sys

        self.db = folder / "trace.db"
        self.said_path = folder / "said.json"
        command = [
            *jobs.INGERO, "trace", "--no-tui", "--db", str(self.db), *words,
            "--", sys.executable, str(PROGRAMS), name, str(self.said_path),
        ]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=180, env=jobs.environment(folder) | environment
        )
        self.output = done.stdout + done.stderr
        assert done.returncode == 0, self.output[-3000:]
        self.said = json.loads(self.said_path.read_text())

    def sql(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        import contextlib
        import sqlite3

        with contextlib.closing(sqlite3.connect(f"file:{self.db}?mode=ro", uri=True)) as connection:
            return connection.execute(statement, values).fetchall()

    def count(self, statement: str, *values: object) -> int:
        return int(str(self.sql(statement, *values)[0][0] or 0))

    def losses(self) -> list[tuple[object, ...]]:
        return self.sql("SELECT reason, SUM(count) FROM losses GROUP BY 1")
