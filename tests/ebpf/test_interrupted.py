"""Ctrl-C in the first seconds of `trace -- COMMAND`: it ends, and so does everything it began."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ingero.scenarios import cuda
from tests.ebpf.real_runs import TRACEBACK, Place, children, until
from tests.ebpf.terminals import after_s, on_terminal, shown

pytestmark = pytest.mark.timeout(120)
# Seconds after the start, from before Python runs to when the command does; a few of them in every run.
FEW_PRESSES = (0.5, 1.25, 2.5)
PRESSES = [
    pytest.param(quarter / 4, marks=() if quarter / 4 in FEW_PRESSES else pytest.mark.long)
    for quarter in range(1, 13)
]


def test_ctrl_c_while_the_trace_starts_means_that_the_command_never_runs(place: Place) -> None:
    command = ("trace", "--db", str(place.db), "--", "sh", "-c", "echo it ran; exec sleep 60")
    with on_terminal(place, *command, columns=80) as (process, ours):
        text = shown(ours, lambda text: "measuring what a probe costs" in text)
        os.write(ours, b"\x03")
        text += shown(ours)
        assert process.wait(30) == 130
    assert "it ran" not in text
    assert "Diagnosis" not in text


@pytest.mark.parametrize("press_s", PRESSES)
def test_ctrl_c_at_any_moment_ends_the_trace_and_its_command(
    place: Place, steady: str, press_s: float
) -> None:
    theirs: set[int] = set()  # the command, readers, keepers of probes
    words = ("trace", "--db", str(place.db), "--", steady)
    with on_terminal(place, *words, columns=80, LD_LIBRARY_PATH=str(cuda.stub_dir())) as (process, ours):

        def watched(enough: Callable[[str], bool]) -> Callable[[str], bool]:
            return lambda text: theirs.update(children(process.pid)) or enough(text)

        text = shown(ours, watched(after_s(press_s)))
        assert process.poll() is None, text
        os.write(ours, b"\x03")
        text += shown(ours, watched(lambda _: False))  # until nobody has the terminal open
        # As a shell says it; before Python can answer, the signal itself ends it.
        assert process.wait(30) in (130, -signal.SIGINT), text
    assert TRACEBACK not in text
    # Probes are in the kernel as long as a keeper of them lives.
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in theirs), f"{theirs} are gone")
    assert not place.db.exists() or all(place.ended())
