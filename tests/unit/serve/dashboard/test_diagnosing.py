"""The diagnosis in a process of its own is the same as here, errors and deaths included."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ingero.errors import StoreError, TargetError
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range
from ingero.serve.dashboard.source import Diagnosing
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, call, fixed_clock, operation, process, thread, window


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "x.db"
    parts = {
        "calls": call("cudaLaunchKernel"), "operations": operation("cudaLaunchKernel"),
        "threads": thread(gpu_wait=SECOND), "processes": [process()],
    }  # fmt: skip
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        assert writer.write(window(0, **parts)) == ""
    return path


def test_it_answers_what_would_be_answered_here(db: Path) -> None:
    diagnosing = Diagnosing()
    diagnosing.start()
    assert diagnosing.report(db, Range(), None, None) == get_report(db, Range())
    with pytest.raises(TargetError, match="process 7 was not seen") as seen:
        diagnosing.report(db, Range(), 7, None)
    assert seen.value.hint
    with pytest.raises(StoreError):
        diagnosing.report(db.with_name("nothing.db"), Range(), None, None)
    assert diagnosing.report(db, Range(), 100, "n").node == "n"


def test_ctrl_c_on_the_terminal_of_the_server_never_reaches_it() -> None:
    """Not even while it starts: it would leave a traceback there."""
    diagnosing = Diagnosing()
    diagnosing.start()
    assert diagnosing._process is not None
    assert os.getsid(diagnosing._process.pid) == diagnosing._process.pid


def test_a_process_that_is_killed_is_replaced(db: Path) -> None:
    diagnosing = Diagnosing()
    diagnosing.start()
    first = diagnosing._process
    assert first is not None
    first.kill()
    first.wait()
    assert diagnosing.report(db, Range(), None, None).node == "n"
    second = diagnosing._process
    assert second is not None
    assert second.pid != first.pid
    assert second.poll() is None


def test_the_process_ends_with_the_pipe_that_it_is_asked_through(db: Path) -> None:
    diagnosing = Diagnosing()
    diagnosing.start()
    assert diagnosing._pipe is not None
    assert diagnosing._process is not None
    diagnosing._pipe.close()
    assert diagnosing._process.wait(timeout=30) == 0
