"""Whom a traced process lost time to, looked up once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ingero.agent import bystanders
from ingero.agent.bystanders import MATTERS_NS, Bystanders, who_mattered
from ingero.discover.processes import Stat, read_stat
from ingero.model.window import Container, Process
from tests.builders import culprit, waker, window

from .fakes import Here

WAIT = "import sys; print(flush=True); sys.stdin.read()"


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[str]]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", WAIT, "noise\x1b[31m"], **pipes) as child:  # type: ignore[call-overload]
        child.stdout.readline()
        yield child
        child.kill()


def test_a_culprit_that_is_not_traced_is_looked_up_with_its_container(
    stranger: subprocess.Popen[str],
) -> None:
    taken = window(culprits=culprit(pid=stranger.pid, ns=MATTERS_NS))
    [found], containers = Bystanders(Here()).meet(taken, {100})
    stat = read_stat(stranger.pid)
    assert stat is not None
    assert (found.pid, found.start_ns, found.target) == (stranger.pid, stat.start_ns, False)
    assert (found.parent_pid, found.uid) == (os.getpid(), os.getuid())
    assert "sys.stdin.read()" in found.cmdline
    assert "\x1b" not in found.cmdline
    assert [each.cgroup_id for each in containers] == [found.cgroup_id]


def test_a_waker_is_looked_up_too_and_everybody_only_once(stranger: subprocess.Popen[str]) -> None:
    book = Bystanders(Here())
    woken = window(wakers=waker(waker_pid=stranger.pid))
    assert [each.pid for each in book.meet(woken, {})[0]] == [stranger.pid]
    assert book.meet(woken, {}) == ([], [])


def test_a_bystander_that_became_another_program_is_looked_up_again() -> None:
    shell = ["sh", "-c", "echo; read x; exec sleep 60"]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        book, taken = Bystanders(Here()), window(culprits=culprit(pid=child.pid, ns=MATTERS_NS))
        [before], _ = book.meet(taken, {})
        child.stdin.write("go\n")
        child.stdin.flush()
        line = Path(f"/proc/{child.pid}/cmdline")
        while line.read_bytes() != b"sleep\x0060\0":  # its name changes a moment before
            pass
        [after], _ = book.meet(taken, {})
        child.kill()
    assert (before.comm, after.comm, after.cmdline) == ("sh", "sleep", "sleep 60")
    assert before.start_ns == after.start_ns


def test_targets_the_agent_the_quota_and_the_gone_are_no_bystanders(stranger: subprocess.Popen[str]) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    taken = [
        culprit(pid=stranger.pid, ns=MATTERS_NS),
        culprit(pid=os.getpid(), ns=MATTERS_NS),
        culprit(pid=0, ns=MATTERS_NS, throttled=True),
        culprit(pid=gone.pid, ns=MATTERS_NS),
    ]
    assert Bystanders(Here()).meet(window(culprits=taken), {stranger.pid}) == ([], [])


def test_a_process_that_ended_and_was_not_yet_taken_away_is_left_alone() -> None:
    zombie = subprocess.Popen(["true"])
    while (stat := read_stat(zombie.pid)) and stat.state != "Z":
        pass
    assert Bystanders(Here()).meet(window(culprits=culprit(pid=zombie.pid, ns=MATTERS_NS)), {}) == ([], [])
    zombie.wait()


def test_interrupts_and_small_change_do_not_matter() -> None:
    quiet = window(
        culprits=[culprit(pid=7, ns=MATTERS_NS - 1)], wakers=[waker(waker_pid=8, kind=2), waker(waker_pid=0)]
    )
    assert who_mattered(quiet) == []
    twice = [culprit(pid=7, ns=MATTERS_NS // 2 + 1), culprit(pid=9, ns=9 * MATTERS_NS)]
    assert who_mattered(window(culprits=[*twice, twice[0]])) == [9, 7]


def test_a_crowd_is_met_over_several_windows_those_who_matter_most_first(
    stranger: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bystanders, "MAX_NEW", 1)
    taken = window(culprits=[culprit(pid=1, ns=MATTERS_NS), culprit(pid=stranger.pid, ns=2 * MATTERS_NS)])
    book = Bystanders(Here())
    assert [[each.pid for each in book.meet(taken, {})[0]] for _ in range(3)] == [[stranger.pid], [1], []]


class Crowd:
    """As many processes as are asked for, each in a container of its own."""

    def ask(self, _what: object, pid: int) -> tuple[Process, Container]:
        return Process(pid, pid, "c", "", pid, None), Container(pid, f"/{pid}")


def test_a_crowd_that_comes_and_goes_for_months_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bystanders, "MAX_REMEMBERED", 30)
    monkeypatch.setattr(bystanders.processes, "read_stat", lambda pid: Stat(pid, "c", "S", 1, pid))
    book = Bystanders(cast(Any, Crowd()))
    for start in range(10_000_000, 10_001_000, 10):  # numbers no process has
        some = [culprit(pid=pid, ns=MATTERS_NS) for pid in range(start, start + 10)]
        found, containers = book.meet(window(culprits=some), {})
        assert len(found) == len(containers) == 10
    assert len(book._met) == len(book._containers) == 30
    assert book.meet(window(culprits=some), {}) == ([], [])  # the last ones are known
