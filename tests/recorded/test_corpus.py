"""Jobs recorded on a real card and on the stub, each with its truth: the diagnosis may not get worse.

`make truth-replay` shows what a change did; its `--accept` renews the verdicts these tests hold it to.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from benchmarks.corpus.kept import FOLDER, Truth, database, truths
from benchmarks.corpus.replay import judge, kept_verdicts, replay
from benchmarks.truth.judge import ALARMING
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range

KEPT = truths()
VERDICTS = kept_verdicts()
LEAST_RIGHT = 0.95
MOST_BYTES = 15_000_000


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize(("path", "truth"), KEPT, ids=[_name(path) for path, _ in KEPT])
def test_what_was_right_stays_right(path: Path, truth: Truth) -> None:
    before, now = VERDICTS[_name(path)], replay(path, truth)
    assert now.right or not before.right, now.text()
    assert now.line is not False or not before.line, now.text()
    assert now.culprit is not False or not before.culprit, now.text()


HEALTHY = [(path, truth) for path, truth in KEPT if truth.healthy]
SEEN = (0.2, 0.35, 0.5, 0.65, 0.8)  # of a recording: what a running trace had seen so far


@pytest.mark.parametrize(("path", "truth"), HEALTHY, ids=[_name(path) for path, _ in HEALTHY])
def test_nothing_is_said_of_a_healthy_job_while_it_is_watched(path: Path, truth: Truth) -> None:
    with database(path) as db:
        span = get_report(db, Range()).window
        for part in SEEN:
            upto_ns = span.from_ns + int((span.to_ns - span.from_ns) * part)
            report = get_report(db, Range(start=_local(span.from_ns), end=_local(upto_ns)))
            told = judge(truth, report)
            assert told.right, f"after {part:.0%}: {told.text()}"


def _local(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9).isoformat()


def test_verdicts_are_kept_for_every_recording_and_are_good_enough() -> None:
    assert {_name(path) for path, _ in KEPT} == set(VERDICTS)
    for group in ("card", "stub"):
        faults = [
            VERDICTS[_name(path)] for path, truth in KEPT if path.parent.name == group and truth.expected
        ]
        assert sum(each.right for each in faults) >= LEAST_RIGHT * len(faults)
    healthy = [VERDICTS[_name(path)] for path, truth in KEPT if truth.healthy]
    assert not [each for each in healthy if any(severity in ALARMING for _, severity in each.told)]


def test_the_corpus_stays_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*.xz")) <= MOST_BYTES
