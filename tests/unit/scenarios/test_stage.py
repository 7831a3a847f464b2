"""The real job of `demo --live` on the stub device, without a trace: it runs, and is gone afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ingero.errors import TargetError
from ingero.scenarios.catalogue import ALL
from ingero.scenarios.live import Stage
from ingero.scenarios.scenario import Live, Scenario, Work

QUICK = Work(launches=2, kernel_us=50, host_us=100, batch_bytes=4096)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_job_waits_for_its_cue_then_works_and_is_gone_afterwards() -> None:
    with Stage(Live(work=Work(workers=1, item_us=10), seconds=5), gpu=False) as stage:
        (pid,) = stage.pids
        assert children(pid) == []
        before = cpu_ticks(pid)
        stage.begin()
        until(lambda: len(children(pid)) == 1 and cpu_ticks(pid) > before + 5)
        stage.require_success()
        (worker,) = children(pid)
    until(lambda: not Path(f"/proc/{pid}").exists())
    until(lambda: not Path(f"/proc/{worker}").exists())


def test_neighbours_and_the_rival_come_and_go() -> None:
    live = Live(QUICK, cores=1, neighbours=2, rival=QUICK, between=(0, 1))
    with Stage(live, gpu=False) as stage:
        rival = stage.pids[1]
        stage.begin()
        until(lambda: len(stage._others) == 4)
        until(lambda: all(each.poll() is not None for each in stage._others[1:]))
        assert stage._others[1].pid == rival
        assert stage._others[1].returncode == 0  # it ended by itself, between two iterations
        stage.require_success()


def test_a_job_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGERO_STUB_FAIL", "cuLaunchKernel:3=700")
    with Stage(Live(QUICK), gpu=False) as stage:
        stage.begin()
        until(lambda: stage._job.poll() is not None)
        with pytest.raises(TargetError, match="cuLaunchKernel returned 700"):
            stage.require_success()


def test_a_library_that_cannot_be_loaded_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingero.scenarios.live.DRIVER", "libnosuchthing.so.1")
    with pytest.raises(TargetError, match="did not start"), Stage(Live(QUICK), gpu=True):
        pass


@pytest.mark.parametrize("scenario", ALL, ids=lambda each: each.name)
def test_live_scenarios_are_short_and_begin_with_words(scenario: Scenario) -> None:
    live = scenario.live
    assert 8 <= live.seconds <= 12
    assert live.says[0][0] == 0
    assert live.between[1] <= live.seconds
    assert bool(live.neighbours or live.rival) == (live.between != (0, 0))
