"""What the suite of injected faults makes on the machine is gone afterwards, whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.truth import leftovers
from benchmarks.truth.drawn import Draw
from benchmarks.truth.play import bite, staged, start
from benchmarks.truth.props import Cores, Disk, Hogs, MemoryLimit, Quota, Wire
from benchmarks.truth.stage import GROUPS, Stage

USUAL = {"kernels": 2, "blocks": 100}


@pytest.fixture(autouse=True)
def own_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is under way keeps its own."""
    if not (GROUPS / "cpu" / "cpu.cfs_quota_us").exists():
        pytest.skip("no cgroup v1 cpu controller: the suite needs it")
    monkeypatch.setattr(leftovers, "LIST", tmp_path / "list")
    monkeypatch.setattr(leftovers, "LOCK", tmp_path / "lock")


def made() -> list[tuple[str, str]]:
    lines = leftovers.LIST.read_text().splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def there(kind: str, name: str) -> bool:
    if kind == "namespace":
        return Path("/run/netns", name).exists()
    return Path(name).is_mount() if kind == "mount" else Path(name).exists()


def everything() -> Draw:
    hogs = Hogs((("sleep", "100"),), (0,))
    return Draw(USUAL, props=[Disk(megabytes=64), Wire(10), Quota(0.9), MemoryLimit(512), Cores((0,)), hogs])


def play_and_fail(folder: Path, stages: list[Stage]) -> None:
    draw = everything()
    with staged(folder) as stage:
        stages.append(stage)
        start(draw, stage)
        stage.go()
        bite(draw, stage)
        assert {kind for kind, _ in made()} == {"folder", "file", "mount", "group", "namespace"}
        assert all(there(*each) for each in made())
        raise KeyboardInterrupt


def test_nothing_is_left_when_a_run_is_interrupted(tmp_path: Path) -> None:
    stages: list[Stage] = []
    with pytest.raises(KeyboardInterrupt):
        play_and_fail(tmp_path, stages)
    assert made()
    assert not [each for each in made() if there(*each)]
    [stage] = stages
    assert not [pid for pid in (stage.pid, *stage.culprits) if Path(f"/proc/{pid}").exists()]


def test_what_a_killed_run_left_is_taken_away_by_the_next_and_nothing_else(tmp_path: Path) -> None:
    theirs, somebodys = GROUPS / "cpu" / f"left-{os.getpid()}", GROUPS / "cpu" / f"other-{os.getpid()}"
    somebodys.mkdir()
    try:
        leftovers.note("group", str(theirs))
        theirs.mkdir()
        with leftovers.alone():
            assert not theirs.exists()
            assert somebodys.exists()
    finally:
        somebodys.rmdir()
    assert not leftovers.LIST.exists()


def test_two_runs_at_once_are_refused() -> None:
    with leftovers.alone(), pytest.raises(RuntimeError, match="another run"), leftovers.alone():
        pass


KILLED = """
import sys, time
from pathlib import Path
from benchmarks.truth.play import staged, start
from benchmarks.truth import leftovers
from benchmarks.truth.drawn import Draw
leftovers.LIST = Path(sys.argv[1], "list")
with staged(Path(sys.argv[1])) as stage:
    start(Draw({"kernels": 2, "blocks": 100, "loader": "workers", "workers": 2}), stage)
    stage.go()
    stage.until(lambda: len(stage.book.hired) == 2, "workers")
    print(stage.pid, *stage.book.hired, flush=True)
    time.sleep(60)
"""


def test_no_process_outlives_a_killed_run_and_its_folder_is_taken_away(tmp_path: Path) -> None:
    root = Path(leftovers.__file__).parent.parent.parent
    run = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], cwd=root, stdout=subprocess.PIPE, text=True
    )
    with run:
        assert run.stdout is not None
        pids = run.stdout.readline().split()
        run.send_signal(signal.SIGKILL)
    assert len(pids) == 3
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert [kind for kind, name in made() if there(kind, name)] == ["folder"]
    folder = Path(made()[0][1])
    leftovers.take_away()
    assert not folder.exists()


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
