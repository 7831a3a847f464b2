"""Terminals without Unicode."""

from __future__ import annotations

import pytest

from ingero.serve import terminal
from ingero.serve.letters import has_unicode, to_ascii


@pytest.mark.parametrize(
    ("environment", "has"),
    [
        ({}, True),
        ({"LANG": "de_DE.UTF-8"}, True),
        ({"LANG": "C.utf8"}, True),
        ({"LANG": "C"}, False),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),  # Python's own doing
        ({"LC_CTYPE": "C.UTF-8"}, True),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "POSIX"}, False),
        ({"LANG": "de_DE.UTF-8", "TERM": "linux"}, False),
        ({"LANG": "de_DE.ISO-8859-1", "TERM": "xterm"}, False),
    ],
)
def test_who_has_unicode(environment: dict[str, str], has: bool) -> None:
    assert has_unicode(environment) is has


def test_every_character_has_one_that_stands_for_it_so_that_columns_stay() -> None:
    text = "█▓▒░▁▇│┌┘⚠ 5 µs ≥1 ms “x” → 漢"
    plain = to_ascii(text)
    assert plain.isascii()
    assert len(plain) == len(text)
    assert plain.endswith("?")


def test_the_marks_of_buckets_stay_different() -> None:
    marks = [to_ascii(mark) for mark in terminal.BUCKET_MARKS.values()]
    assert len(set(marks)) == len(marks)
