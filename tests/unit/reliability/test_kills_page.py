"""What a run of kills says of itself."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks import reliability
from benchmarks.kills import TALLIES, Tally, all_of, section


def test_runs_add_up_and_problems_are_told(tmp_path: Path) -> None:
    runs = [
        Tally(1, {"agent": 5, "keeper": 1}, [0.5, 0.7], [], 100),
        Tally(2, {"agent": 2}, [0.9], ["kill 1 (agent): the database is damaged"], 20),
    ]
    (tmp_path / TALLIES).write_bytes(b"\n".join(map(msgspec.json.encode, runs)))
    text = section(all_of(tmp_path))
    assert "8 kills (7 agent, 1 keeper), 1 problems. The jobs made 120 launches" in text
    assert "| median of 3 | 0.70 |" in text
    assert "| most | 0.90 |" in text
    assert "Problems: kill 1 (agent): the database is damaged." in text


def test_the_page_has_room_for_it() -> None:
    reliability.put(reliability.PAGE.read_text(encoding="utf-8"), "kills", section(Tally(1)))
