"""The programs that are diagnosed do what their settings say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.truth import run
from benchmarks.truth.jobs.book import Book
from benchmarks.truth.jobs.settings import read_plan

JOBS = Path(run.__file__).parent / "jobs"


@contextmanager
def job(
    script: str, folder: Path, usual: dict[str, Any], later: dict[str, Any], **more: str
) -> Iterator[Book]:
    (folder / "settings.json").write_text(json.dumps({"usual": usual, "later": later}))
    book = Book(folder / "book")
    with subprocess.Popen(
        [sys.executable, JOBS / f"{script}.py", folder / "settings.json", folder / "book"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | more,
    ) as job:  # fmt: skip
        try:
            assert job.stdout is not None
            assert job.stdin is not None
            assert job.stdout.readline() == f"ready {job.pid}\n"
            job.stdin.write("go\n")
            job.stdin.flush()
            yield book
        finally:
            job.kill()
    ends_ns = book.ends_ns()
    assert ends_ns == sorted(ends_ns)


SMALL = {"kernels": 2, "blocks": 100, "batch_ms": 0.1, "workers": 1}


@pytest.mark.parametrize("loader", ["inline", "thread", "workers"])
def test_a_job_trains_keeps_its_book_and_changes_when_told(tmp_path: Path, loader: str) -> None:
    with job("train", tmp_path, SMALL | {"loader": loader}, {"stale_pointer_every": 1}) as book:
        assert read_plan(tmp_path / "settings.json").at(1).kernels == 2
        until(lambda: book.steps > 5)
        assert book.troubles == 0
        assert len(book.hired) == (loader == "workers")
        book.phase = 1
        until(lambda: book.troubles > 2)


SHAPES: tuple[dict[str, Any], ...] = (
    {"sync": "poll", "loader": "child", "streams": 3},
    {"sync": "stream", "loader": "pickled", "double_buffered": True},
    {"sync": "device", "loader": "decoded", "graph": "replay", "shapes": 9, "graphs_kept": 2},
    {"sync": "lagged", "buffers_mixed": True, "buffers": 5, "look_layers": 1, "result_bytes": 4096},
    {"feeders": 2, "result_bytes": 4096, "result_pinned": False, "log_lines": 2, "encoders": 1,
     "encoded_items": 10, "records": 300, "turnover": 10, "accumulate": 2, "optimizer_kernels": 3},
)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape.get("sync", "feeders")))
def test_a_job_of_another_shape_trains_and_asks_once_for_too_much(
    tmp_path: Path, shape: dict[str, Any]
) -> None:
    later = {"wanted_once": True, "wanted_bytes": 1 << 40}
    with job("fit", tmp_path, SMALL | shape, later, INGERO_STUB_MEMORY="4g") as book:
        until(lambda: book.steps > 5)
        assert book.troubles == 0
        book.phase = 1
        until(lambda: book.troubles > 0)
        asked = book.steps + 5
        until(lambda: book.steps > asked)
        troubles = book.troubles
        until(lambda: book.steps > asked + 5)
        assert book.troubles == troubles


def test_a_job_goes_on_without_a_device_and_after_failed_steps(tmp_path: Path) -> None:
    for number, fails in enumerate(("cudaGetDeviceCount:1+=35", "cudaEventSynchronize:4+=700")):
        (tmp_path / str(number)).mkdir()
        with job("fit", tmp_path / str(number), SMALL, {}, INGERO_STUB_FAIL=fails) as book:
            until(lambda book=book: book.steps > 8 and book.troubles > 2)  # type: ignore[misc]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
