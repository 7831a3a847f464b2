"""Labels of jobs in the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingero.errors import StoreError
from ingero.model.window import Annotation
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import EPOCH_NS, OPERATIONS, SECOND, fixed_clock, process, window

Ask = Callable[..., list[dict[str, Any]]]
SPANS = "SELECT pid, key, value, number, start_ns, end_ns FROM annotations ORDER BY key, start_ns"


def said(at_ns: int, pid: int = 100, **labels: object) -> list[Annotation]:
    return [Annotation(pid, at_ns, key, str(value)) for key, value in labels.items()]


def spans(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["key"], row["value"], row["start_ns"] - EPOCH_NS, row["end_ns"] - EPOCH_NS) for row in rows]


def test_a_label_holds_until_its_next_value_and_the_last_to_the_end(ask: Ask) -> None:
    first = window(annotations=[*said(10, step=1, epoch=0), *said(500, step=2, epoch=0)])
    second = window(SECOND, annotations=said(SECOND + 7, step=3))
    assert spans(ask(SPANS, first, second)) == [
        ("epoch", "0", 10, 2 * SECOND),  # said again: it went on
        ("step", "1", 10, 500),
        ("step", "2", 500, SECOND + 7),
        ("step", "3", SECOND + 7, 2 * SECOND),
    ]


def test_an_empty_value_ends_a_label(ask: Ask) -> None:
    rows = ask(SPANS, window(annotations=[*said(10, step=1), *said(20, step=""), *said(50, step=1)]))
    assert spans(rows) == [("step", "1", 10, 20), ("step", "1", 50, SECOND)]


def test_a_label_ends_with_its_process(ask: Ask) -> None:
    ended = process(100, end_ns=700)
    assert spans(ask(SPANS, window(processes=[ended], annotations=said(10, step=1)))) == [
        ("step", "1", 10, 700)
    ]


def test_processes_do_not_end_each_others_labels(ask: Ask) -> None:
    rows = ask(SPANS, window(annotations=[*said(10, step=1), *said(20, pid=200, step=1), *said(30, step=2)]))
    assert [(row["pid"], *span) for row, span in zip(rows, spans(rows), strict=True)] == [
        (100, "step", "1", 10, 30),
        (200, "step", "1", 20, SECOND),
        (100, "step", "2", 30, SECOND),
    ]


@pytest.mark.parametrize(
    ("value", "number"), [("120", 120), ("-3", -3), ("1e9", None), ("9" * 19, None), ("a", None)]
)
def test_whole_numbers_can_be_compared(ask: Ask, value: str, number: int | None) -> None:
    assert ask(SPANS, window(annotations=said(10, step=value)))[0]["number"] == number


def test_what_a_killed_recording_left_open_ends_with_it(path: Path) -> None:
    clock = fixed_clock()
    killed = Writer(path, "a", clock, OPERATIONS)
    killed.write(window(annotations=said(10, step=1)))
    killed._connection.close()  # as kill -9 leaves it
    with Writer(path, "a", clock, OPERATIONS) as writer:
        writer.write(window(5 * SECOND, annotations=said(5 * SECOND + 10, step=90)))
    with Reader(path) as reader:
        found = reader.rows("SELECT value, start_ns, end_ns FROM annotations ORDER BY start_ns")
    assert [(value, start - EPOCH_NS, end - EPOCH_NS) for value, start, end in found] == [
        ("1", 10, SECOND),
        ("90", 5 * SECOND + 10, 6 * SECOND),
    ]


def test_a_database_from_before_labels_gets_them_when_recorded_into(path: Path) -> None:
    Writer(path, "a", fixed_clock(), OPERATIONS).close()
    with sqlite3.connect(path) as older:
        older.execute("DROP VIEW annotations")
        older.execute("DROP TABLE annotation")
        older.execute("DELETE FROM migration WHERE name = '0002-annotations'")
    older.close()
    with pytest.raises(StoreError, match="older version"):
        Reader(path)
    with Writer(path, "a", fixed_clock(), OPERATIONS) as writer:
        assert writer.write(window(annotations=said(10, step=1))) == ""
    with Reader(path) as reader:
        assert reader.rows("SELECT value FROM annotations") == [("1",)]


def test_old_labels_go_with_the_seconds_they_are_of(path: Path) -> None:
    with Writer(path, "a", fixed_clock(), OPERATIONS, max_bytes=1_200_000) as writer:
        for second in range(200):
            labels = [each for n in range(100) for each in said(second * SECOND + n, step=second * 100 + n)]
            assert writer.write(window(second * SECOND, annotations=labels)) == ""
    with Reader(path) as reader:
        count, newest = reader.rows("SELECT COUNT(*), MAX(number) FROM annotations")[0]
    assert 0 < count < 15_000
    assert newest == 19_999
