"""Many verdicts in figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.truth.judge import ALARMING, NOT_FELT, RIGHT, WORTH, Verdict

NOTHING = "(nothing)"


@dataclass(frozen=True)
class Score:
    """`points`: 1 for a right diagnosis, 0 for none, -1 for a wrong one, over the number of runs."""

    faults: int
    outcomes: Counter[str]
    points: float | None
    healthy: int
    alarms: int
    lows: int
    culprits: tuple[int, int]  # named, of those to be named
    gains: tuple[int, int]  # agreed, of those compared
    lines: tuple[int, int]  # right, of those to be named
    not_felt: int = 0  # faults the job was no slower for, and about which nothing was said


def score(verdicts: Sequence[Verdict]) -> Score:
    faults = [each for each in verdicts if each.expected and each.outcome != NOT_FELT]
    healthy = [each for each in verdicts if not each.expected]
    outcomes = Counter(each.outcome for each in faults)
    points = sum(WORTH[each.outcome] for each in faults) / len(faults) if faults else None
    return Score(
        len(faults),
        outcomes,
        points,
        len(healthy),
        sum(each.outcome != RIGHT for each in healthy),
        sum(each.outcome == RIGHT and bool(each.told) for each in healthy),
        _of([each.culprit for each in faults]),
        _of([each.gain for each in faults]),
        _of([each.line for each in faults]),
        sum(each.outcome == NOT_FELT for each in verdicts),
    )


def _of(answers: Sequence[bool | None]) -> tuple[int, int]:
    known = [answer for answer in answers if answer is not None]
    return sum(known), len(known)


def confusion(verdicts: Sequence[Verdict]) -> dict[str, Counter[str]]:
    """What was said first, by what was done to the job."""
    matrix: dict[str, Counter[str]] = {}
    for each in verdicts:
        done = " + ".join(each.expected) or NOTHING
        first = each.first
        if not each.expected:
            first = next((kind for kind, severity in each.told if severity in ALARMING), "")
        matrix.setdefault(done, Counter())[first or NOTHING] += 1
    return matrix
