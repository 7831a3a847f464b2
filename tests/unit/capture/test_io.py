"""Differences of the kernel's sums of what others asked of the disks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingero.capture import counters
from ingero.capture.counters import IDLE_READS, IoBook
from ingero.model import layout

OWN_PID = 7
Entry = tuple[int, int, int]
Sums = tuple[int, int, int, int]


class Kernel:
    """The map as the reader sees it."""

    def __init__(self) -> None:
        self.entries: dict[Entry, Sums] = {}

    def read(self) -> tuple[Any, Any]:
        keys = np.array(list(self.entries), layout.IO_KEY)
        values = np.array([(*sums, b"dd") for sums in self.entries.values()], layout.IO_VALUE)
        return keys, values.reshape(-1, 1)

    def delete(self, keys: Any) -> None:
        for key in keys.tolist():
            del self.entries[key]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(counters, "MapReader", lambda *_: made)
    return made


def told(book: IoBook) -> list[tuple[Any, ...]]:
    return [tuple(row.tolist()) for row in book.read()]


def test_a_window_has_what_is_new_and_the_longest_only_when_it_is_a_record(kernel: Kernel) -> None:
    book = IoBook(0, OWN_PID)
    assert told(book) == []
    kernel.entries[200, 1, 8] = (3, 4096, 900, 500)
    assert told(book) == [(200, 1, 8, b"dd", 3, 4096, 900, 500)]
    assert told(book) == []
    kernel.entries[200, 1, 8] = (4, 5000, 1000, 500)
    assert told(book) == [(200, 1, 8, b"dd", 1, 904, 100, -1)]
    kernel.entries[200, 1, 8] = (5, 6000, 2000, 1000)
    assert told(book) == [(200, 1, 8, b"dd", 1, 1000, 1000, 1000)]


def test_a_counter_the_kernel_began_anew_is_no_negative_number(kernel: Kernel) -> None:
    book = IoBook(0, OWN_PID)
    kernel.entries[200, 0, 8] = (9, 9000, 900, 100)
    told(book)
    kernel.entries[200, 0, 8] = (2, 100, 50, 30)
    assert told(book) == [(200, 0, 8, b"dd", 2, 100, 50, 30)]


def test_the_agents_own_writes_are_not_told_and_the_busiest_come_first(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "MAX_ROWS", 2)
    kernel.entries = {(pid, 1, 8): (1, 1, pid * 10, 1) for pid in (OWN_PID, 300, 500, 400)}
    assert [row[0] for row in told(IoBook(0, OWN_PID))] == [500, 400]


def test_counters_that_stand_still_are_dropped(kernel: Kernel) -> None:
    book = IoBook(0, OWN_PID)
    kernel.entries[200, 0, 8] = (1, 1, 1, 1)
    for _ in range(IDLE_READS + 1):
        told(book)
    assert kernel.entries
    told(book)
    assert not kernel.entries
    kernel.entries[200, 0, 8] = (1, 5, 6, 6)
    assert told(book) == [(200, 0, 8, b"dd", 1, 5, 6, 6)]
