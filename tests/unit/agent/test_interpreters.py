"""Interpreters are looked for until they are found, and again after an exec."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from ingero.agent.interpreters import Interpreters
from ingero.attach.kernel import KernelSide
from ingero.discover.python_runtime import Runtime, RuntimeFinder
from ingero.discover.python_threads import counts_its_own, own_numbers
from ingero.model.window import Unwatchable

from .fakes import Here

SECOND = 1_000_000_000
Answers = dict[int, Runtime | None]
Look = Callable[..., list[int]]


class Told:
    """The side of the kernel that is written to."""

    def __init__(self) -> None:
        self.layouts: dict[int, NDArray[np.void]] = {}

    def write_python(self, pid: int, python: NDArray[np.void]) -> None:
        self.layouts[pid] = python


def interpreters(told: Told | None = None, with_frames: bool = False) -> Interpreters:
    return Interpreters(cast(KernelSide, told or Told()), lambda pid: None, with_frames, Here())


def test_programs_of_others_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingero.agent.interpreters.MAX_PROGRAMS", 100)
    book = interpreters()
    for pid in range(1, 1000):
        book.forget_program([pid])
    book.forget_program([1])
    assert len(book._programs) == 100
    assert {1, 999} <= set(book._programs)  # those that executed last


@pytest.fixture
def answers() -> Answers:
    """What will be found in processes."""
    return {}


@pytest.fixture
def looked(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Look at processes; whom it asked about."""
    asked: list[int] = []

    def ask(_: RuntimeFinder, pid: int) -> Runtime | None:
        asked.append(pid)
        return answers.get(pid)

    monkeypatch.setattr(RuntimeFinder, "runtime_of", ask)
    monkeypatch.setattr("ingero.agent.reading.counts_its_own", lambda pid: False)

    def look(book: Interpreters, at_s: float, *live: int) -> list[int]:
        asked.clear()
        book.look(live, int(at_s * SECOND))
        return list(asked)

    return look


def found(start: int = 5, end: int = 9, why: str = "") -> Runtime:
    return Runtime(start, end, why, "3.12.1")


def test_this_process_has_a_lock() -> None:
    book = interpreters()
    book.look([os.getpid()], SECOND)
    start, end = book.locks()[os.getpid()]
    assert 0 < start < end


def test_one_found_is_not_looked_for_again_until_its_process_executes(answers: Answers, looked: Look) -> None:
    answers[1], book = found(), interpreters()
    assert [looked(book, second, 1) for second in range(100)] == [[1]] + [[]] * 99
    answers[1] = found(50, 90)
    book.forget_program([1])
    assert looked(book, 100, 1) == [1]
    assert book.locks() == {1: (50, 90)}
    assert looked(book, 101, 1) == []


def test_of_a_process_that_ended_what_was_seen_last_stays(
    answers: Answers, looked: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise ProcessLookupError

    answers[1], book = found(), interpreters()
    looked(book, 1, 1)
    monkeypatch.setattr(RuntimeFinder, "runtime_of", gone)
    book.look([1, 2], 3 * SECOND)
    assert book.locks()[1] == (5, 9)


def test_a_process_without_python_is_looked_at_ever_less_often(answers: Answers, looked: Look) -> None:
    book = interpreters()
    when = [tick / 100 for tick in range(8000) if looked(book, tick / 100, 1)]
    assert when[:6] == [0, 0.02, 0.06, 0.14, 0.30, 0.62]
    assert len(when) < 15
    assert book.locks() == {1: (0, 0)}
    answers[1] = found()  # it has loaded one
    looked(book, 300, 1)
    assert book.locks() == {1: (5, 9)}


def test_what_cannot_be_watched_is_told_once_and_has_no_lock(answers: Answers, looked: Look) -> None:
    answers[1], book = found(why="nobody knows"), interpreters()
    looked(book, 1, 1)
    assert book.locks() == {}
    assert book.take_news() == [Unwatchable(1, "gil", "nobody knows")]
    looked(book, 2, 1)
    assert book.take_news() == []


def test_the_ended_are_forgotten_and_a_crowd_is_spread(answers: Answers, looked: Look) -> None:
    answers |= {pid: found(pid, pid + 1) for pid in range(50)}
    book = interpreters()
    turns = [len(looked(book, 0, *range(50))) for _ in range(14)]
    assert turns == [4] * 12 + [2, 0]
    book.forget([7])
    assert 7 not in book.locks()
    assert len(book.locks()) == 49


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    program = "def wait():\n    print(flush=True)\n    input()\nwait()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_how_frames_are_read_is_told_to_the_kernel_with_the_programs_number(
    child: subprocess.Popen[Any],
) -> None:
    told = Told()
    book = interpreters(told, with_frames=True)
    book.look([child.pid], SECOND)
    first = told.layouts[child.pid]
    assert book.version_of(child.pid) == sys.version_info[:2]
    assert first["code_type"] > 0
    assert first["program"] == 0
    book.forget_program([child.pid])
    assert book.version_of(child.pid) is None
    book.look([child.pid], 2 * SECOND)
    assert told.layouts[child.pid]["program"] > 0
    assert book.version_of(child.pid) == sys.version_info[:2]


def test_without_stacks_nothing_is_told_to_the_kernel(child: subprocess.Popen[Any]) -> None:
    told = Told()
    book = interpreters(told)
    book.look([child.pid], SECOND)
    assert child.pid in book.locks()
    assert told.layouts == {}


def test_threads_of_this_process_have_the_numbers_everybody_knows() -> None:
    assert own_numbers(os.getpid())[threading.get_native_id()] == threading.get_native_id()
    assert not counts_its_own(os.getpid())
