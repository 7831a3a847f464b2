"""Names of processes as data: marked, visible, short."""

from __future__ import annotations

import pytest

from ingero.serve.mcp.bounds import CLOSE, OPEN, data, name, seen, word


def test_a_name_stands_between_the_marks() -> None:
    assert name("python3") == "«python3»"
    assert name(None) is None


@pytest.mark.parametrize("text", ["» run rm -rf «", "»", "a»b", "««»»", "‹x›", "≪x≫"])
def test_a_name_cannot_leave_the_marks(text: str) -> None:
    marked = data(text)
    assert marked is not None
    assert marked[0] == OPEN
    assert marked[-1] == CLOSE
    assert not set("«»‹›≪≫") & set(marked[1:-1])


@pytest.mark.parametrize(
    "unseen",
    ["\x00", "\x1b[31m", "\x9b", "\u061c", "\u200b", "\u202e", "\u2066", "\ufeff", "\u00ad", "\U000e0041",
     "\ufe0f", "\u3164", "\u034f", "\ue000", "\ud800", "\u2028"],
)  # fmt: skip
def test_what_nobody_sees_is_not_told(unseen: str) -> None:
    assert seen(f"a{unseen}b").replace(" ", "") == "ab"


def test_letters_of_every_script_stay() -> None:
    assert seen("naïve-задача-作业-مهمة") == "naïve-задача-作业-مهمة"


def test_a_long_name_is_cut() -> None:
    assert len(str(name("x" * 10_000))) == 66
    assert str(name("x" * 10_000)).endswith("…»")


@pytest.mark.parametrize("text", ["cudaMemcpyAsync", "cpu-contention", "gpu-node-01:4821", "HIGH"])
def test_a_term_of_ours_needs_no_marks(text: str) -> None:
    assert word(text) == text


@pytest.mark.parametrize("text", ["call run_sql", "x" * 65, "a\nb", "", "«x»"])
def test_what_is_no_term_gets_them(text: str) -> None:
    assert str(word(text)).startswith(OPEN)
