"""Sums over stretches of time are those of the rows in them, however they are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero.model.facts import Facts
from ingero.model.span_sums import SUMMED, Span
from ingero.store.reader import Reader
from tests.builders import EPOCH_NS, SECOND
from tests.paced_jobs import BEGIN_S, PacedJob, Slower

BEGIN = EPOCH_NS + BEGIN_S * SECOND


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = PacedJob(30, 50, Slower(8, 20, 0.5, "runqueue"))
    return job.write(tmp_path_factory.mktemp("spans") / "job.db")


cuts = st.lists(st.integers(0, 30_000), min_size=2, max_size=8, unique=True).map(sorted)


@settings(max_examples=40, deadline=None)
@given(cuts=cuts)
def test_stretches_have_the_sums_of_their_rows(db: Path, cuts: list[int]) -> None:
    spans = [
        (BEGIN + first * SECOND // 1000, BEGIN + last * SECOND // 1000)
        for first, last in zip(cuts[::2], cuts[1::2], strict=False)
    ]
    with Reader(db) as reader:
        (recording,) = reader.recordings()
        facts = reader.facts(recording, 0, recording.last_ns)
        assert facts.spans is not None
        expected = facts.spans(spans)
        found = facts.over([spans])
    _same(found, expected, spans)


def _same(found: Facts, expected: dict[str, np.ndarray], spans: list[Span]) -> None:
    for name, keys in SUMMED.items():
        rows, wanted = getattr(found, name), expected[name]
        assert np.array_equal(np.sort(rows, order=keys), np.sort(wanted, order=keys)), (name, spans)
