"""Answers of a bounded size that say what is missing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero.serve.mcp.bounds import BYTES, fitted

LEAVES = st.none() | st.integers() | st.text(max_size=20) | st.integers(0, 3000).map(lambda size: "ü" * size)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=30,
)


def test_what_fits_is_whole() -> None:
    answer = {"answer": "ok", "rows": [1, 2, 3], "nothing": None}
    assert json.loads(fitted(dict(answer))) == {"answer": "ok", "rows": [1, 2, 3]}


def test_the_end_of_the_longest_list_goes_and_is_counted() -> None:
    found = json.loads(fitted({"answer": "ok", "rows": list(range(10_000)), "few": [1, 2]}))
    assert found["few"] == [1, 2]
    assert found["rows"] == list(range(len(found["rows"])))
    assert found["left_out"] == {"rows": 10_000 - len(found["rows"])}


def test_one_entry_that_is_too_long_is_shortened_inside() -> None:
    found = json.loads(fitted({"chains": [{"kind": "x", "proof": ["y" * 300] * 100}]}))
    assert found["chains"][0]["kind"] == "x"
    assert found["left_out"]["chains.proof"] > 0


def test_more_detail_is_more_room() -> None:
    rows = ["x" * 100] * 1000
    assert len(fitted({"rows": list(rows)})) < len(fitted({"rows": list(rows)}, "full")) <= BYTES["full"]


def test_a_long_text_keeps_its_closing_mark() -> None:
    found = json.loads(fitted({"text": "«" + "x" * 9_000 + "»"}))
    assert found["text"].endswith("…»")


@given(st.dictionaries(st.text(min_size=1, max_size=5), TREES, max_size=4))
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("detail", ["brief", "full"])
def test_no_answer_is_larger_than_promised(detail: Any, answer: dict[str, Any]) -> None:
    text = fitted(answer, detail)
    assert len(text.encode()) <= BYTES[detail]
    assert isinstance(json.loads(text), dict)
