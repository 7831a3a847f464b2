"""The programs that are diagnosed do what their settings say."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.truth import run
from benchmarks.truth.jobs.book import Book
from benchmarks.truth.jobs.settings import read_plan

SCRIPT = Path(run.__file__).parent / "jobs" / "train.py"


@pytest.mark.parametrize("loader", ["inline", "thread", "workers"])
def test_a_job_trains_keeps_its_book_and_changes_when_told(tmp_path: Path, loader: str) -> None:
    usual = {"kernels": 2, "blocks": 100, "batch_ms": 0.1, "loader": loader, "workers": 1}
    (tmp_path / "settings.json").write_text(json.dumps({"usual": usual, "later": {"stale_pointer_every": 1}}))
    assert read_plan(tmp_path / "settings.json").at(1).kernels == 2
    book = Book(tmp_path / "book")
    with subprocess.Popen(
        [sys.executable, SCRIPT, tmp_path / "settings.json", tmp_path / "book"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as job:  # fmt: skip
        try:
            assert job.stdout is not None
            assert job.stdin is not None
            assert job.stdout.readline() == f"ready {job.pid}\n"
            job.stdin.write("go\n")
            job.stdin.flush()
            until(lambda: book.steps > 5)
            assert book.troubles == 0
            assert len(book.hired) == (loader == "workers")
            book.phase = 1
            until(lambda: book.troubles > 2)
        finally:
            job.kill()
    ends_ns = book.ends_ns()
    assert ends_ns == sorted(ends_ns)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
