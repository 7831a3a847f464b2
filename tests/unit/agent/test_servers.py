"""When a process is looked at for listening sockets, and what is made of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ingero.agent.bystanders import Servers, is_due
from ingero.agent.targets import Targets
from ingero.discover.sockets import ListenerRound
from ingero.model.window import Process
from tests.builders import process


@pytest.fixture
def told() -> list[Process]:
    return []


@pytest.fixture
def targets(told: list[Process]) -> Targets:
    live = {100: SimpleNamespace(process=process()), 200: SimpleNamespace(process=process(200))}
    return cast(Targets, SimpleNamespace(live=live, note=told.append))


def test_a_new_process_is_looked_at_often_and_then_every_ten_windows() -> None:
    assert [window for window in range(1, 41) if is_due(window)] == [1, 2, 4, 8, 10, 20, 30, 40]


def test_a_change_is_news_and_the_same_again_is_not(
    targets: Targets, told: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[int, bool | None] = {100: False, 200: None}
    monkeypatch.setattr(ListenerRound, "listens", lambda _, pid: answers[pid])
    book = Servers()

    def look() -> list[Any]:
        told.clear()
        book.look(targets)
        return [(each.pid, each.listens) for each in told]

    assert look() == [(100, False)]  # what is not known is not told
    answers[100] = True
    assert look() == [(100, True)]
    assert [look() for _ in range(8)] == [[]] * 8
    answers[100] = None  # cannot be told now: what was known stays
    assert look() == []
    assert targets.live[100].process.listens is True
