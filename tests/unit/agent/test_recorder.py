"""Windows are stored in order; the diagnosis waits for them, not they for it."""

from __future__ import annotations

import threading
from pathlib import Path

from builders import OPERATIONS, SECOND, fixed_clock, window

from ingero.agent.recorder import BEHIND, Recorder
from ingero.model.window import Window
from ingero.store.writer import Writer


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
