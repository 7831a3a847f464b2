"""Whoever freezes their own processes is waited for less; others are not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from ingero.agent import patience
from ingero.agent.patience import AVOID_S, HELD_UP_S, LEAST_S, LONGEST_AVOID_S, Patience

OTHER = 12345


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def theirs() -> Iterator[int]:
    """A process of another user, where that can be had."""
    with subprocess.Popen(["sleep", "60"], user=OTHER if os.geteuid() == 0 else None) as made:
        yield made.pid
        made.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a process of another user")
def test_a_user_with_many_frozen_processes_uses_up_the_time_of_nobody_else(clock: Clock, theirs: int) -> None:
    waiting = Patience(clock)
    for _ in range(3):
        waiting.spend(theirs, HELD_UP_S)
    assert waiting.of(theirs) == LEAST_S
    assert waiting.of(f"/proc/{theirs}/map_files/1-2") == LEAST_S
    assert waiting.of(os.getpid()) == HELD_UP_S
    assert waiting.of("/a/file") == HELD_UP_S
    clock.now += 30
    assert waiting.of(theirs) == HELD_UP_S


def test_all_users_together_have_half_of_the_time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_owner", lambda about: about)
    waiting = Patience(clock)
    for user in range(100):
        waiting.spend(user, waiting.of(user))
    assert waiting.of(1000) == LEAST_S
    clock.now += 60
    assert waiting.of(1000) == HELD_UP_S


def test_another_process_of_the_number_is_not_avoided(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, me = Patience(clock), os.getpid()
    waiting.avoid(me, HELD_UP_S)
    assert waiting.avoids(me)
    monkeypatch.setattr(patience, "_start_ns", lambda _: 1)
    assert not waiting.avoids(me)


def test_what_had_all_the_time_is_avoided_twice_as_long_and_what_was_cut_short_is_not(clock: Clock) -> None:
    waiting, me = Patience(clock), os.getpid()

    def avoided_s() -> float:
        began = clock.now
        while waiting.avoids(me):
            clock.now += 1
        return clock.now - began

    waiting.avoid(me, HELD_UP_S)
    assert avoided_s() == AVOID_S
    waiting.avoid(me, LEAST_S)
    assert avoided_s() == AVOID_S
    waiting.avoid(me, HELD_UP_S)
    assert avoided_s() == 2 * AVOID_S
    for _ in range(10):
        waiting.avoid(me, HELD_UP_S)
    assert avoided_s() == LONGEST_AVOID_S
    waiting.avoid(me, HELD_UP_S)
    waiting.forgive(me)
    assert not waiting.avoids(me)
