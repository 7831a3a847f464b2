"""What a run of kills says of itself."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import msgspec

from benchmarks import reliability
from benchmarks.kills import TALLIES, Tally, all_of, is_strangers, section


def test_runs_add_up_and_problems_are_told(tmp_path: Path) -> None:
    runs = [
        Tally(1, {"agent": 5, "keeper": 1}, [0.5, 0.7], [], 100),
        Tally(2, {"agent": 2}, [0.9], ["kill 1 (agent): the database is damaged"], 20, strangers=1),
    ]
    (tmp_path / TALLIES).write_bytes(b"\n".join(map(msgspec.json.encode, runs)))
    text = section(all_of(tmp_path))
    assert "8 kills (7 agent, 1 keeper), 1 problems. The jobs made 120 launches" in text
    assert "After 1 of the kills another trace of this machine had probes on the jobs." in text
    assert "| median of 3 | 0.70 |" in text
    assert "| most | 0.90 |" in text
    assert "Problems: kill 1 (agent): the database is damaged." in text


def test_the_page_has_room_for_it() -> None:
    reliability.put(reliability.PAGE.read_text(encoding="utf-8"), "kills", section(Tally(1)))


def test_a_keeper_that_was_left_alone_is_no_strangers() -> None:
    """A stranger's has an agent that lives; init has those that were left alone."""
    with subprocess.Popen(["sleep", "60"]) as mine:
        assert not is_strangers(mine.pid)
        mine.kill()
    left = subprocess.run(
        ["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    assert not is_strangers(int(left.stdout))
    os.kill(int(left.stdout), signal.SIGKILL)
