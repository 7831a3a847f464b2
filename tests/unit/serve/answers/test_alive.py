"""A command about processes that are gone is not shown: how to find them is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from ingero.detectors.commands import SEE_WHO
from ingero.model.finding import Fix
from ingero.serve.answers.diagnosis import for_now
from ingero.store.processes import boot_id
from tests.builders import finding


class Recorded:
    """What a reader knows of processes."""

    def __init__(self, boot: str, tick: int) -> None:
        self.row = boot, tick

    def rows(self, _sql: str, _parameters: tuple[int]) -> list[tuple[str, int]]:
        return [self.row]


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def asked(pid: int, boot: str, tick: int) -> Fix:
    fix = Fix("Look.", f"ls /proc/{pid}/fd", pids=[pid], if_ended="ls /proc/$(pgrep -n -x job)/fd")
    given = msgspec.structs.replace(finding(), fix=[fix])
    return for_now(Recorded(boot, tick), [given])[0].fix[0]  # type: ignore[arg-type]


def test_of_a_process_that_runs_the_command_stays() -> None:
    assert asked(os.getpid(), boot_id(), started(os.getpid())).command == f"ls /proc/{os.getpid()}/fd"


def test_of_a_process_that_ended_it_is_said_how_to_find_it() -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    fix = asked(done.pid, boot_id(), 1)
    assert fix.command == "ls /proc/$(pgrep -n -x job)/fd"
    assert fix.text == f"Look. Process {done.pid} has ended. This command finds them by name:"


def test_where_a_name_says_too_little_the_command_is_said_to_show_who_runs_now() -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    fix = Fix("Look.", f"renice -n 19 -p {done.pid}", pids=[done.pid], if_ended=SEE_WHO)
    given = msgspec.structs.replace(finding(), fix=[fix])
    (told,) = for_now(Recorded(boot_id(), 1), [given])[0].fix  # type: ignore[arg-type]
    assert told.text == f"Look. Process {done.pid} has ended. See what uses the cores now:"
    assert told.command == SEE_WHO


def test_a_number_that_somebody_else_has_now_is_not_theirs() -> None:
    assert str(os.getpid()) not in (asked(os.getpid(), boot_id(), started(os.getpid()) + 1).command or "")


@pytest.mark.parametrize("boot", ["", "another"])
def test_of_another_machine_nothing_is_known(boot: str) -> None:
    assert asked(4_000_000, boot, 1).command == "ls /proc/4000000/fd"
