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
from ingero.detectors.commands import sanitised
from ingero.detectors.detector import Detector, LineChoice, State
from ingero.model.facts import ErrorFact
from ingero.model.finding import Fix, Proof, Severity

SHOWN = 4  # ways of failing that a report lists


def proof_of(each: ErrorFact) -> Proof:
    return Proof(
        f"{each.op} returned {each.code} ({name_of(each.code)}) {each.count} times",
        f"SELECT COUNT(*) FROM cuda_events WHERE pid = {each.pid} AND op = '{each.op}' AND ret = {each.code}",
        [each.event_id],
    )


def by_process(found: list[ErrorFact]) -> dict[int, list[ErrorFact]]:
    grouped: dict[int, list[ErrorFact]] = {}
    for each in sorted(found, key=lambda one: (-(one.code in FATAL), one.first_ns)):
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
    elsewhere = ANSWERS | MISMATCH | CAPTURE | {OUT_OF_MEMORY}
    if each.op.startswith("nccl"):
        return True
    asked = each.code == NOT_FOUND and "Get" in each.op
    return each.code not in elsewhere and not asked


def find(timeline: Timeline) -> Iterator[State]:
    for pid, found in by_process([e for e in timeline.facts.errors if _is_ours(e)]).items():
        worst = found[0]
        fatal = worst.code in FATAL
        comm = timeline.facts.comm(pid)
        yield failed(
            found,
            comm,
            f"{comm}: {worst.op} failed with {name_of(worst.code)} ({worst.code})",
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
    lines=(LineChoice("event", "fails"),),
)


# CUDA status codes: which are answers, which are faults, and what they mean.
#
# Numbers are those of cudaError_t and CUresult, which agree from 100 on.

# Answers that programs ask for, or that libraries provoke on purpose while probing.
# 4 and 709 come when a program ends and its libraries clean up after the driver has gone.
ANSWERS = frozenset({600, 704, 705, 712, 713, 801, 100, 36, 4, 709})
NOT_FOUND = 500  # an answer to those who ask whether something is there
OUT_OF_MEMORY = 2
MISMATCH = frozenset({35, 209, 222, 223, 803, 804})
# After one of these the context is lost: every later call fails.
FATAL = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 214, 220, 721})
NAMES = {
    1: "invalid value",
    2: "out of memory",
    3: "not initialised",
    9: "invalid launch configuration",
    35: "driver older than the runtime",
    98: "invalid device function",
    201: "invalid context",
    209: "no code for this GPU",
    214: "uncorrectable ECC error",
    222: "PTX newer than the driver",
    223: "JIT compiler not found",
    400: "invalid handle",
    700: "illegal memory access",
    702: "kernel timed out",
    710: "device-side assert",
    715: "illegal instruction",
    716: "misaligned address",
    719: "kernel failed",
    801: "not supported",
    803: "driver and library disagree",
    804: "compatibility mode not supported here",
    900: "not permitted while capturing",
    901: "capture invalidated",
}
CAPTURE = frozenset(range(900, 911))


def name_of(code: int) -> str:
    return NAMES.get(code, f"error {code}")
