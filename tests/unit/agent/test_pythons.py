"""Interpreters are looked for until they are found, and again after an exec."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from ingero.agent.pythons import Pythons
from ingero.discover.gil import Gil, GilFinder
from ingero.model.window import NotWatched

SECOND = 1_000_000_000
Answers = dict[int, Gil | None]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """What the finder will say; `asked` holds whom it was asked about."""
    known: Answers = {}
    monkeypatch.setattr(GilFinder, "gil_of", lambda _, pid: known.get(pid))
    return known


@pytest.fixture
def looked(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    asked: list[int] = []
    say = GilFinder.gil_of

    def ask(finder: GilFinder, pid: int) -> Gil | None:
        asked.append(pid)
        return say(finder, pid)

    monkeypatch.setattr(GilFinder, "gil_of", ask)

    def look(book: Pythons, at_s: int, *live: int, executed: dict[int, int] | None = None) -> list[int]:
        asked.clear()
        book.look(live, executed or {}, at_s * SECOND)
        return list(asked)

    return look


def test_this_process_has_a_lock() -> None:
    book = Pythons()
    book.look([os.getpid()], {}, SECOND)
    start, end = book.locks()[os.getpid()]
    assert 0 < start < end


def test_one_found_is_not_looked_for_again_until_its_process_executes(
    answers: Answers, looked: Callable[..., list[int]]
) -> None:
    answers[1], book = Gil(5, 9), Pythons()
    assert [looked(book, second, 1) for second in range(100)] == [[1]] + [[]] * 99
    answers[1] = Gil(50, 90)
    assert looked(book, 100, 1, executed={1: 99 * SECOND}) == [1]
    assert book.locks() == {1: (50, 90)}
    assert looked(book, 101, 1, executed={1: 99 * SECOND}) == []  # looked at since


def test_of_a_process_that_ended_what_was_seen_last_stays(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise ProcessLookupError

    answers[1], book = Gil(5, 9), Pythons()
    book.look([1], {}, SECOND)
    monkeypatch.setattr(GilFinder, "gil_of", gone)
    book.look([1, 2], {1: 2 * SECOND}, 3 * SECOND)
    assert book.locks() == {1: (5, 9)}


def test_a_process_without_python_is_looked_at_ever_less_often(
    answers: Answers, looked: Callable[..., list[int]]
) -> None:
    book = Pythons()
    when = [second for second in range(200) if looked(book, second, 1)]
    assert when == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert book.locks() == {1: (0, 0)}
    answers[1] = Gil(5, 9)  # it has loaded one
    looked(book, 300, 1)
    assert book.locks() == {1: (5, 9)}


def test_what_cannot_be_watched_is_told_once_and_has_no_lock(answers: Answers) -> None:
    answers[1], book = Gil(why="nobody knows"), Pythons()
    book.look([1], {}, SECOND)
    assert book.locks() == {}
    assert book.take_news() == [NotWatched(1, "gil", "nobody knows")]
    book.look([1], {}, 2 * SECOND)
    assert book.take_news() == []


def test_the_ended_are_forgotten_and_a_crowd_is_spread_over_windows(
    answers: Answers, looked: Callable[..., list[int]]
) -> None:
    answers |= {pid: Gil(pid, pid + 1) for pid in range(50)}
    book = Pythons()
    assert len(looked(book, 0, *range(50))) == 32
    assert len(looked(book, 0, *range(50))) == 18
    book.forget([7])
    assert 7 not in book.locks()
    assert len(book.locks()) == 49
