"""Jobs recorded on a real card and on the stub, each with its truth: the diagnosis may not get worse.

`make truth-replay` shows what a change did; its `--accept` renews the verdicts these tests hold it to.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.corpus.kept import FOLDER, Truth, database, truths
from benchmarks.corpus.replay import judge, kept_verdicts
from benchmarks.truth.judge import ALARMING
from ingero.detectors import SPIKY
from ingero.model.report import Report
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range
from tests import contradictions

KEPT = truths()
VERDICTS = kept_verdicts()
LEAST_RIGHT = 0.95  # of the faults that are felt, as docs/truth.md defines it
FELT = 1.1  # times as long a step, by the job's own clock
MOST_BYTES = 15_000_000


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


class Kept(NamedTuple):
    """A recording unpacked, with what is said of it."""

    name: str
    truth: Truth
    db: Path
    report: Report

    def part(self, first: float, last: float) -> Report:
        """What is said of a part of it; 0 to 1."""
        span = self.report.window
        start, end = (_local(span.from_ns + int((span.to_ns - span.from_ns) * at)) for at in (first, last))
        return get_report(self.db, Range(start=start, end=end))


@pytest.fixture(scope="module", params=KEPT, ids=[_name(path) for path, _ in KEPT])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    path, truth = request.param
    with database(path) as db:
        yield Kept(_name(path), truth, db, get_report(db, Range()))


def test_what_was_right_stays_right(kept: Kept) -> None:
    before, now = VERDICTS[kept.name], judge(kept.truth, kept.report)
    assert now.right or not before.right, now.text()
    assert now.line is not False or not before.line, now.text()
    assert now.culprit is not False or not before.culprit, now.text()


def test_no_finding_contradicts_itself(kept: Kept) -> None:
    assert not contradictions.of(kept.db, kept.report)


def test_the_rows_of_a_chain_are_all_of_its_time(kept: Kept) -> None:
    for accounted, spent in contradictions.chains(kept.db):
        assert accounted == pytest.approx(spent, rel=1e-4)


def test_a_part_says_nothing_that_the_whole_does_not_know(kept: Kept) -> None:
    """It may have too little to say anything; regular stalls that are too few in it are told as what they
    consist of, and what became slower may have no better name yet."""
    known = {each.kind for each in kept.report.findings} | set(kept.truth.expected)
    known |= SPIKY if "periodic-spike" in known else set()
    known |= {"slowdown"} if any(each.effect.usual_ns for each in kept.report.findings) else set()
    for part in ((0, 0.5), (0, 0.65), (0, 0.8), (0.5, 1)):
        told = [each.kind for each in kept.part(*part).findings if each.severity in ALARMING]
        assert set(told[:1]) <= known, part


SEEN = (0.2, 0.35, 0.5, 0.65, 0.8)  # of a recording: what a running trace had seen so far


def test_nothing_is_said_of_a_healthy_job_while_it_is_watched(kept: Kept) -> None:
    for part in SEEN if kept.truth.healthy else ():
        told = judge(kept.truth, kept.part(0, part))
        assert told.right, f"after {part:.0%}: {told.text()}"


def _local(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9).isoformat()


def _is_felt(truth: Truth) -> bool:
    """A fault without step times is an event of its own."""
    return not truth.usual_ms or not truth.now_ms or truth.now_ms >= FELT * truth.usual_ms or _is_event(truth)


def _is_event(truth: Truth) -> bool:
    return bool({"gpu-memory-leak", "cuda-oom"} & set(truth.expected))


def test_verdicts_are_kept_for_every_recording_and_are_good_enough() -> None:
    assert {_name(path) for path, _ in KEPT} == set(VERDICTS)
    for group in ("card", "stub"):
        faults = [
            VERDICTS[_name(path)]
            for path, truth in KEPT
            if path.parent.name == group and truth.expected and _is_felt(truth)
        ]
        assert sum(each.right for each in faults) >= LEAST_RIGHT * len(faults)
    healthy = [VERDICTS[_name(path)] for path, truth in KEPT if truth.healthy]
    assert not [each for each in healthy if any(severity in ALARMING for _, severity in each.told)]


def test_the_corpus_stays_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*.xz")) <= MOST_BYTES
