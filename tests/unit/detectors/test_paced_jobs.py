"""What must hold for any job whose pace falls, however it is recorded and looked at."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from ingero.model.finding import Severity
from ingero.units import format_clock
from tests import contradictions
from tests.builders import EPOCH_NS, SECOND
from tests.paced_jobs import BEGIN_S, JOB, PacedJob, Slower, explained, over

# Where the extra time of a step may go, and what it is called there.
KINDS = {
    "host_cpu": "data-starvation",
    "disk_wait": "disk-wait",
    "memory_wait": "memory-pressure",
    "runqueue": "cpu-contention",
    "net_wait": "slow-peer",
    "sleep": "slowdown",
    "unexplained": "slowdown",
}
# The same draws each time; without the phases that look for the smallest failure: a draw is a database.
ANY: Any = {"deadline": None, "derandomize": True, "phases": [Phase.explicit, Phase.generate]}
buckets = st.sampled_from(sorted(KINDS))
paces = st.floats(30, 300)  # with five steps a second, four in one of them are chance
noises = st.lists(st.floats(-0.015, 0.015), min_size=3, max_size=7)


@contextmanager
def recorded(job: PacedJob) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield job.write(Path(folder) / "job.db")


@settings(max_examples=20, **ANY)
@given(buckets, paces, noises, st.floats(6, 12), st.floats(3, 6), st.floats(0.2, 0.9), st.integers(12, 40))
@example("disk_wait", 100.0, [0.0], 8.5, 3.0, 0.2, 20)  # of two whole seconds less than half a second is lost
def test_a_pace_that_falls_by_a_fifth_for_three_seconds_has_a_finding_over_that_time(
    bucket: str, pace: float, noise: list[float], first: float, lasts: float, fall: float, more: int
) -> None:
    slower = Slower(first, first + lasts, fall, bucket)
    with recorded(PacedJob(int(first + lasts) + more, pace, slower, noise)) as db:
        found = over(explained(db).findings, first, first + lasts)
    assert [each.kind for each in found] == [KINDS[bucket]]
    assert found[0].victim.pid == JOB


@settings(max_examples=12, **ANY)
@given(paces, noises, st.floats(6, 12), st.floats(3, 20), st.floats(0.2, 0.9), st.booleans())
def test_a_larger_batch_on_a_busy_card_is_no_trouble_and_its_limit_says_since_when(
    pace: float, noise: list[float], first: float, lasts: float, fall: float, card: bool
) -> None:
    """With the card's own word, and without it."""
    seconds = int(first + lasts) + 2  # the last one counts as cut
    with recorded(PacedJob(seconds, pace, Slower(first, seconds, fall, "gpu_wait"), noise, card)) as db:
        report = explained(db)
    assert not [each for each in report.findings if each.severity is not Severity.LOW]
    (bound,) = report.bound
    assert bound.by == "gpu"
    assert bound.since_ns is not None
    assert abs(bound.since_ns - EPOCH_NS - (BEGIN_S + first) * SECOND) <= 1.5 * SECOND
    assert bound.usual_steps_per_s == pytest.approx(pace, rel=0.03)
    assert bound.steps_per_s == pytest.approx(pace * (1 - fall), rel=0.1, abs=1)
    assert f"since {format_clock(bound.since_ns)} ({bound.usual_steps_per_s:.3g} before)" in bound.text


@settings(max_examples=8, **ANY)
@given(buckets, paces, noises, st.floats(0.3, 0.9), st.integers(20, 40))
def test_each_half_of_a_recording_has_the_kinds_of_the_whole(
    bucket: str, pace: float, noise: list[float], fall: float, quarter: int
) -> None:
    """A trouble in the middle of each half: whoever looks at one finds what is in the whole."""
    half = 2 * (quarter // 2)
    slower = Slower(half - 8, half + 8, fall, bucket)
    with recorded(PacedJob(2 * half, pace, slower, noise)) as db:
        whole, left, right = (explained(db, *span) for span in ((), (0, half), (half, 2 * half)))
    assert {each.kind for each in whole.findings} == {KINDS[bucket]}
    for part in (left, right):
        assert {each.kind for each in part.findings} == {each.kind for each in whole.findings}


@settings(max_examples=8, **ANY)
@given(paces, noises, st.integers(8, 60))
def test_a_job_that_keeps_its_pace_has_no_finding_in_any_part(
    pace: float, noise: list[float], seconds: int
) -> None:
    with recorded(PacedJob(seconds, pace, noise=noise)) as db:
        for span in ((), (0, seconds / 2), (seconds / 2, seconds)):
            assert not explained(db, *span).findings


@settings(max_examples=12, **ANY)
@given(
    buckets, paces, noises, st.floats(6, 12), st.floats(3, 12), st.floats(0.2, 0.95), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_a_finding_never_contradicts_itself(
    bucket: str, pace: float, noise: list[float], first: float, lasts: float, fall: float, card: bool,
    lines: bool,
) -> None:  # fmt: skip
    slower = Slower(first, first + lasts, fall, bucket)
    with recorded(PacedJob(30, pace, slower, noise, card, lines)) as db:
        report = explained(db)
        assert report.findings
        assert not contradictions.of(db, report)


@settings(max_examples=10, **ANY)
@given(st.sampled_from(sorted(KINDS.keys() - {"runqueue"})), paces, st.floats(0.2, 0.9), st.booleans())
def test_the_line_is_where_the_extra_time_goes(bucket: str, pace: float, fall: float, card: bool) -> None:
    with recorded(PacedJob(24, pace, Slower(8, 18, fall, bucket), card=card, lines=True)) as db:
        (found,) = explained(db).findings
    assert found.source is not None
    assert (found.source.function, found.source.line) == ("slow", 99)


@settings(max_examples=8, **ANY)
@given(buckets, paces, noises, st.floats(0.2, 0.9), st.booleans())
def test_the_rows_of_a_chain_are_all_of_its_time(
    bucket: str, pace: float, noise: list[float], fall: float, card: bool
) -> None:
    with recorded(PacedJob(24, pace, Slower(8, 18, fall, bucket), noise, card, True)) as db:
        sums = list(contradictions.chains(db))
    assert len(sums) == 2  # usual, and slow
    for accounted, spent in sums:
        assert accounted == pytest.approx(spent, rel=1e-4)


@settings(max_examples=8, **ANY)
@given(buckets, paces, noises, st.floats(0.4, 0.9), st.integers(10, 40))
def test_a_job_slow_from_its_start_has_the_same_kinds_in_each_half(
    bucket: str, pace: float, noise: list[float], fall: float, half: int
) -> None:
    """No past to compare with: the card says that it is idle."""
    slower = Slower(0, 2 * half, fall, bucket)
    with recorded(PacedJob(2 * half, pace, slower, noise, card=True)) as db:
        parts = [explained(db, *span) for span in ((), (0, half), (half, 2 * half))]
    kinds = [{each.kind for each in part.findings} for part in parts]
    assert kinds[0] == kinds[1] == kinds[2]
    assert kinds[0] or bucket == "sleep"  # which is a decision of the program's


@settings(max_examples=8, **ANY)
@given(buckets, st.floats(30, 120), st.floats(0.2, 0.9))
def test_a_pace_is_that_of_the_steps_the_job_says(bucket: str, pace: float, fall: float) -> None:
    """Its calls come as often as before: only its labels tell that there are fewer steps."""
    with recorded(PacedJob(26, pace, Slower(8, 18, fall, bucket), says=True)) as db:
        (found,) = explained(db).findings
    assert found.kind == KINDS[bucket]
    assert found.effect.usual_ns == pytest.approx(SECOND / pace, rel=0.05)
    with recorded(PacedJob(26, pace, says=True)) as db:
        report = explained(db)
    assert not report.findings
    assert report.bound[0].steps_per_s == pytest.approx(pace, rel=0.03)


@settings(max_examples=16, **ANY)
@given(buckets, paces, noises, st.floats(6, 12), st.floats(0.2, 0.9), st.booleans())
def test_six_seconds_after_the_onset_the_same_is_told_as_later(
    bucket: str, pace: float, noise: list[float], first: float, fall: float, card: bool
) -> None:
    """A running trace looks every four seconds at what there is by then: ten seconds in all."""
    slower = Slower(first, 40, fall, bucket)
    with recorded(PacedJob(30, pace, slower, noise, card)) as db:
        live, later = explained(db, 0, first + 6), explained(db)
    assert [each.kind for each in live.findings] == [each.kind for each in later.findings] == [KINDS[bucket]]
