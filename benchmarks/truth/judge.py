"""Whether a report tells what was done to the job. Pure functions over the JSON of `explain`.

A diagnosis is right when an expected kind comes first, every expected kind is there and
nothing is missing, or when an answer that is as good comes first. Saying nothing is not
right; saying something else first is worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.truth.drawn import Case

ALARMING = ("MEDIUM", "HIGH", "CRITICAL")
# These name the one who is to blame as their victim: the killed, the missing.
ABOUT_THE_CULPRIT = ("oom-kill", "nccl-hang", "nccl-straggler")
AGREES_WITHIN = 0.20

RIGHT, INCOMPLETE, SILENT, WRONG = "right", "incomplete", "silent", "wrong"
NOT_FELT = "not felt"  # and nothing said: the GPU hid the fault, the twin is no faster
FELT = 1.10
# What each is worth: a wrong answer is an error twice as bad as none.
WORTH = {RIGHT: 1, INCOMPLETE: 0, SILENT: 0, NOT_FELT: 0, WRONG: -1}


@dataclass(frozen=True)
class Verdict:
    """One report judged."""

    case: str
    seed: int
    expected: tuple[str, ...]
    told: tuple[tuple[str, str], ...]  # kind and severity, as reported
    outcome: str
    culprit: bool | None = None  # None: nobody was to be named
    gain: bool | None = None  # None: nothing was promised, or there is nothing to compare
    promised_ms: float | None = None
    twin_ms: float | None = None
    faulty_ms: float | None = None
    extra: tuple[tuple[str, str], ...] = ()
    line: bool | None = None  # None: no line is to blame

    @property
    def first(self) -> str:
        return self.told[0][0] if self.told else ""


def about(report: dict[str, Any], pids: Sequence[int]) -> dict[str, Any]:
    """What the report tells about these processes; others on the machine may have troubles of their own."""
    return report | {"findings": [each for each in report["findings"] if each["victim"]["pid"] in pids]}


def told_in(report: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((finding["kind"], finding["severity"]) for finding in report["findings"])


def outcome_of(case: Case, told: Sequence[tuple[str, str]]) -> str:
    if case.healthy:
        return WRONG if any(severity in ALARMING for _, severity in told) else RIGHT
    if not told:
        return SILENT
    if told[0][0] in case.instead:
        return RIGHT
    if told[0][0] not in case.expected:
        return WRONG
    return RIGHT if set(case.expected) <= {kind for kind, _ in told} else INCOMPLETE


def names(finding: dict[str, Any], culprits: Sequence[tuple[int, str]]) -> bool:
    """By process id; by name where that alone was told and it is not the victim's own."""
    who = [each for cause in finding["causes"] for each in cause.get("who", [])]
    if finding["kind"] in ABOUT_THE_CULPRIT:
        who.append(finding["victim"])
    pids = {pid for pid, _ in culprits}
    comms = {comm for _, comm in culprits if comm} - {finding["victim"]["comm"]}
    return any(each["pid"] in pids or (each["pid"] is None and each["comm"] in comms) for each in who)


def blames_the_line(finding: dict[str, Any]) -> bool:
    """The line it points to is marked; with what is wrong there the job itself must not say."""
    source = finding.get("source")
    if not source:
        return False
    line: str = Path(source["file"]).read_text().splitlines()[source["line"] - 1]
    return line.endswith("  # here")


def promised_step_ms(finding: dict[str, Any], faulty_ms: float | None) -> float | None:
    """The step time that the finding promises once it is fixed."""
    gain = finding.get("gain")
    return faulty_ms * (1 - gain["share"]) if gain and faulty_ms else None


def agree(promised_ms: float | None, twin_ms: float | None) -> bool | None:
    if promised_ms is None or not twin_ms:
        return None
    return abs(promised_ms - twin_ms) <= AGREES_WITHIN * twin_ms


def judge(
    case: Case,
    seed: int,
    report: dict[str, Any],
    culprits: Sequence[tuple[int, str]] = (),
    faulty_ms: float | None = None,
    twin_ms: float | None = None,
) -> Verdict:
    """A faulty run, or a healthy one."""
    told = told_in(report)
    outcome = outcome_of(case, told)
    if outcome == SILENT and case.timed and faulty_ms and twin_ms and faulty_ms < FELT * twin_ms:
        return Verdict(case.name, seed, case.expected, told, NOT_FELT, twin_ms=twin_ms, faulty_ms=faulty_ms)
    admitted = {*case.expected, *case.also, *case.instead}
    extra = tuple(each for each in told if each[0] not in admitted and each[1] in ALARMING)
    if case.healthy or not told:
        silent = False if case.blames and culprits else None
        return Verdict(case.name, seed, case.expected, told, outcome, culprit=silent, extra=extra)
    first = report["findings"][0]
    named = names(first, culprits) and outcome != WRONG if case.blames and culprits else None
    # Of two faults the first finding promises only its own part.
    compared = case.timed and len(case.expected) == 1 and outcome != WRONG
    promised = promised_step_ms(first, faulty_ms) if compared else None
    return Verdict(
        case.name, seed, case.expected, told, outcome, named, agree(promised, twin_ms), promised, twin_ms,
        faulty_ms, extra, blames_the_line(first) if case.lined and outcome != WRONG else None,
    )  # fmt: skip


def judge_twin(case: Case, seed: int, report: dict[str, Any]) -> Verdict:
    """The same job without its fault is a healthy run."""
    twin = Case(f"{case.name} (twin)", (), case.draw)
    return judge(twin, seed, report)
