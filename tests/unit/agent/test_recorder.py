"""Windows are stored in order; the diagnosis waits for them, not they for it."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from ingero.agent import recorder as module
from ingero.agent.recorder import BEHIND, Recorder
from ingero.errors import StoreError
from ingero.model.window import Window
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, call, fixed_clock, window


class Slow(Writer):
    """Stores nothing until it is let go."""

    go = threading.Event()

    def write(self, window: Window) -> str:
        self.go.wait(20)
        return super().write(window)


def test_windows_that_wait_are_stored_before_the_diagnosis_looks(tmp_path: Path) -> None:
    writer = Slow(tmp_path / "a.db", "n1", fixed_clock(), OPERATIONS)
    recorder = Recorder(writer)
    looked: list[int] = []
    recorder.diagnosis.consider = looked.append  # type: ignore[method-assign]
    for second in range(10):
        recorder.write(window(second * SECOND))
    writer.go.set()
    recorder.close()
    ends = [(second + 1) * SECOND for second in range(10)]
    assert 0 < len(looked) <= BEHIND
    assert looked == ends[-len(looked) :]


def test_a_file_system_that_does_not_answer_holds_up_nobody_and_costs_windows_that_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 5)
    writer = Slow(tmp_path / "a.db", "n1", fixed_clock(), OPERATIONS)
    writer.go.clear()
    recorder = Recorder(writer)
    writer.size_bytes = lambda: pytest.fail("looked at in the loop")  # type: ignore[method-assign]
    given = [window(second * SECOND, calls=[call(), call(), call()]) for second in range(12)]
    for each in given:
        each.losses["ring_call"] = 1
        recorder.write(each)
    assert recorder.size_bytes() > 0
    left_out = recorder.dropped["store_backlog"]
    assert left_out >= 6
    del writer.size_bytes  # type: ignore[method-assign]
    writer.go.set()
    while recorder._queue.qsize():
        time.sleep(0.01)
    recorder.write(window(20 * SECOND))
    recorder.close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as stored:
        losses = dict(stored.execute("SELECT reason, SUM(count) FROM losses GROUP BY reason"))
    assert losses == {"store_backlog": left_out, "ring_call": 12}


def test_an_end_that_does_not_come_is_given_up_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STUCK_S", 0.05)
    writer = Slow(tmp_path / "a.db", "n1", fixed_clock(), OPERATIONS)
    writer.go.clear()
    recorder = Recorder(writer)
    recorder.write(window(SECOND))
    working = recorder._thread
    assert working is not None
    with pytest.raises(StoreError, match="does not answer"):
        recorder.close()
    recorder.close()  # once is enough
    writer.go.set()
    working.join()
    writer.close()
