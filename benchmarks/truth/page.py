"""docs/truth.md and what is printed at the end: every figure from the verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.truth.judge import NOT_FELT, RIGHT, Verdict
from benchmarks.truth.score import NOTHING, Score, confusion, score

OPENING = """\
# Truth

How often the diagnosis is right. Written by `make bench-truth`: real faults are put into real jobs on the
stub device, each job is watched by `ingero trace` as a user watches one, and the report of `ingero explain`
is held against what was done. Every faulty run has a healthy twin: the same job, drawn with the same
numbers, without the fault.

**Right**: the expected kind comes first (of two faults: both are there, one of them first). **Incomplete**:
one of two is missing. **Silent**: no finding. **Wrong**: something else comes first; it counts as an error
twice as bad as silence: points are (right - wrong) / runs. **Culprit**: the process that was started to do
the damage is named by the first finding. **Gain**: the step time promised by the first finding is within 20
% of the twin's own. A **false alarm** is a finding of MEDIUM or above in a run with nothing wrong.
"""


def share(part: tuple[int, int]) -> str:
    return f"{part[0]} of {part[1]} ({part[0] / part[1]:.0%})" if part[1] else "none to tell"


def figures(found: Score) -> Iterator[tuple[str, str]]:
    for outcome in ("right", "incomplete", "silent", "wrong"):
        yield f"faults: {outcome}", share((found.outcomes[outcome], found.faults))
    yield "faults the job was no slower for, and nothing said", str(found.not_felt)
    yield "points", "none" if found.points is None else f"{found.points:.2f}"
    yield "culprit named", share(found.culprits)
    yield "line to blame named", share(found.lines)
    yield "promised gain agrees with the twin", share(found.gains)
    yield "healthy runs with a false alarm", share((found.alarms, found.healthy))
    yield "healthy runs with a LOW finding", share((found.lows, found.healthy))


def summary(verdicts: Sequence[Verdict]) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    for name, value in figures(score(verdicts)):
        yield f"| {name} | {value} |"


def matrix(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Rows: what was done. Columns: what was said first."""
    rows = confusion(verdicts)
    columns = [*sorted({said for row in rows.values() for said in row} - {NOTHING}), NOTHING]
    yield f"| done \\ said first | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for done, row in rows.items():
        cells = (
            f"**{row[said]}**" if said in done.split(" + ") else str(row[said] or "") for said in columns
        )
        yield f"| {done} | {' | '.join(cells)} |"


def failures(verdicts: Sequence[Verdict]) -> Iterator[str]:
    for each in verdicts:
        told = ", ".join(f"{kind} {severity}" for kind, severity in each.told) or "nothing"
        wrong = []
        if each.outcome not in (RIGHT, NOT_FELT):
            wrong.append(f"{each.outcome if each.expected else 'false alarm'}: told {told}")
        if each.culprit is False:
            wrong.append("culprit not named")
        if each.line is False:
            wrong.append("its line not named")
        if each.gain is False and each.promised_ms is not None and each.twin_ms is not None:
            wrong.append(f"promised {each.promised_ms:.1f} ms a step, the twin has {each.twin_ms:.1f}")
        if wrong:
            yield f"- {each.case}, seed {each.seed}: {'; '.join(wrong)}"


def section(title: str, verdicts: Sequence[Verdict]) -> Iterator[str]:
    if not verdicts:
        return
    yield from (f"## {title}", "", *summary(verdicts), "", *matrix(verdicts), "", "What was not right:", "")
    yield from list(failures(verdicts)) or ["- nothing"]
    yield ""


def page(
    sets: dict[str, Sequence[Verdict]], machine: dict[str, str], at: str, seeds: Sequence[int],
    broken: Sequence[str],
) -> str:  # fmt: skip
    """The whole page."""
    lines = [OPENING, "| machine | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in machine.items()]
    lines += [f"| measured | {at} |", f"| seeds | {', '.join(map(str, seeds))} |", ""]
    for name, verdicts in sets.items():
        lines += section(f"Cases: {name}", verdicts)
    if broken:
        lines += ["## Runs that could not be made", "", *(f"- {line}" for line in broken), ""]
    return "\n".join(lines).rstrip("\n") + "\n"
