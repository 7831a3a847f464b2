"""Where a line may end."""

from __future__ import annotations

from rich.text import Text

from ingero.serve.cli.fitting import has_breaks, longest_piece, wrapped


def lines(text: str, width: int) -> list[str]:
    return [line.plain for line in wrapped(Text(text), width)]


def test_lines_end_at_blanks_and_behind_slashes() -> None:
    assert lines("in /usr/lib/x86_64-linux-gnu/libc.so.6", 22) == [
        "in /usr/lib/",
        "x86_64-linux-gnu/",
        "libc.so.6",
    ]


def test_a_share_stays_with_its_number() -> None:
    assert lines("waited 39.7 % of it", 11) == ["waited", "39.7 % of", "it"]


def test_a_unit_stays_with_its_number() -> None:
    assert lines("a core 2.2 s of 4 s so", 10) == ["a core", "2.2 s of", "4 s so"]
    assert lines("12 steps", 5) == ["12", "steps"]


def test_only_a_piece_longer_than_a_line_is_cut() -> None:
    assert lines("abcdefgh ij", 5) == ["abcde", "fgh", "ij"]


def test_lines_given_stay_lines() -> None:
    assert lines("one\ntwo three", 20) == ["one", "two three"]


def test_wide_letters_count_twice() -> None:
    assert lines("漢字漢字", 4) == ["漢字", "漢字"]
    assert longest_piece("漢字 a") == 4


def test_a_name_has_no_place_to_break() -> None:
    assert not has_breaks("cudaGraphInstantiateWithFlags")
    assert has_breaks("a b")
    assert lines("", 10) == [""]
