"""CUDA API errors: calls that failed.

Shows as   non-zero status of runtime, driver or NCCL calls.
Proof      the calls themselves, with their codes.
Not this   answers such as "not ready" or "already enabled"; out of memory (cuda-oom), a
           driver that is too old (version-mismatch), errors of capturing (graph-trouble).
Blind to   functions that are not traced.
Severity   CRITICAL when the context is lost (illegal access, assert, failed kernel), else MEDIUM.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.correlate.timeline import Timeline
from ingero.detectors import status_codes
from ingero.detectors.commands import sanitised
from ingero.detectors.detector import Detector, Line, State
from ingero.model.facts import ErrorFact
from ingero.model.finding import Fix, Proof, Severity

SHOWN = 4  # ways of failing that a report lists


def proof_of(each: ErrorFact) -> Proof:
    return Proof(
        f"{each.op} returned {each.code} ({status_codes.name_of(each.code)}) {each.count} times",
        f"SELECT COUNT(*) FROM cuda_events WHERE pid = {each.pid} AND op = '{each.op}' AND ret = {each.code}",
        [each.event_id],
    )


def by_process(found: list[ErrorFact]) -> dict[int, list[ErrorFact]]:
    grouped: dict[int, list[ErrorFact]] = {}
    for each in sorted(found, key=lambda one: (-(one.code in status_codes.FATAL), one.first_ns)):
        grouped.setdefault(each.pid, []).append(each)
    return grouped


def failed(
    found: list[ErrorFact], comm: str, title: str, severity: Severity, fixes: tuple[Fix, ...]
) -> State:
    """Failed calls of one process as a state, the first of them foremost."""
    first = found[0]
    return State(
        first.pid,
        comm,
        title,
        min(each.first_ns for each in found),
        max(each.last_ns for each in found),
        tuple(proof_of(each) for each in found[:SHOWN]),
        severity,
        first.tid,
        first.op,
        fixes=fixes,
    )


def _is_ours(each: ErrorFact) -> bool:
    elsewhere = (
        status_codes.ANSWERS | status_codes.MISMATCH | status_codes.CAPTURE | {status_codes.OUT_OF_MEMORY}
    )
    if each.op.startswith("nccl"):
        return True
    asked = each.code == status_codes.NOT_FOUND and "Get" in each.op
    return each.code not in elsewhere and not asked


def find(timeline: Timeline) -> Iterator[State]:
    for pid, found in by_process([e for e in timeline.facts.errors if _is_ours(e)]).items():
        worst = found[0]
        fatal = worst.code in status_codes.FATAL
        comm = timeline.facts.comm(pid)
        yield failed(
            found,
            comm,
            f"{comm}: {worst.op} failed with {status_codes.name_of(worst.code)} ({worst.code})",
            Severity.CRITICAL if fatal else Severity.MEDIUM,
            (
                Fix(
                    "Make calls synchronous to see the failing line: set this, then start the job again.",
                    "export CUDA_LAUNCH_BLOCKING=1",
                ),
                *((sanitised(timeline.facts, pid),) if fatal else ()),
            ),
        )


DETECTOR = Detector(
    name="cuda-error",
    needs=frozenset({"calls"}),
    find=find,
    severity="CRITICAL when the context is lost, else MEDIUM",
    lines=(Line("event", "fails"),),
)
